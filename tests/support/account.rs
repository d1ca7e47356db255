//! An account with devices, registered over HTTP like any other.

use super::{
    relay_process::RelayProcess,
    token::{fresh_user, token_for},
};
use relay_endpoints::{
    address::RelayAddress,
    desktop::DesktopOptions,
    devices::{Devices, NewDevice},
    link::LinkOptions,
    phone::PhoneOptions,
};
use relay_protocol::{
    device::Role,
    id::{DeviceId, UserId},
};

/// One user and its devices.
pub struct Account {
    pub address: RelayAddress,
    pub user: UserId,
    pub token: String,
    pub desktops: Vec<DeviceId>,
    pub phones: Vec<DeviceId>,
}

impl Account {
    /// A fresh user with this many devices of each role.
    pub async fn new(relay: &RelayProcess, desktops: usize, phones: usize) -> Self {
        let user = fresh_user();
        let token = token_for(user);
        let mut account = Account { address: relay.address(), user, token, desktops: Vec::new(), phones: Vec::new() };
        for _ in 0..desktops {
            let device = account.add(Role::Desktop).await;
            account.desktops.push(device);
        }
        for _ in 0..phones {
            let device = account.add(Role::Mobile).await;
            account.phones.push(device);
        }
        account
    }

    /// The HTTP client of this account.
    pub fn devices(&self) -> Devices {
        Devices::new(self.address.clone(), self.token.clone()).unwrap()
    }

    /// Registers one more device.
    pub async fn add(&self, role: Role) -> DeviceId {
        let device = NewDevice {
            device_id: None,
            role,
            device_name: format!("test {role}"),
            platform: "linux".to_owned(),
            app_version: "1.0.0".to_owned(),
            relay_eligible: None,
        };
        self.devices().register(&device).await.expect("the relay takes a device").device_id
    }

    /// Options of one of the desktops.
    pub fn desktop(&self, index: usize) -> DesktopOptions {
        DesktopOptions::new(LinkOptions::desktop(self.address.clone(), self.token.clone()), self.desktops[index])
    }

    /// Options of one of the phones, bound to one of the desktops.
    pub fn phone(&self, index: usize, desktop: usize) -> PhoneOptions {
        let link = LinkOptions::phone(self.address.clone(), self.token.clone(), self.desktops[desktop]);
        PhoneOptions::new(link, self.phones[index])
    }
}
