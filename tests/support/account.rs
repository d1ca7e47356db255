//! An account with devices, registered over HTTP like any other.

use super::{
    relay_process::RelayProcess,
    token::{fresh_user, token_for},
};
use relay_endpoints::{
    address::RelayAddress,
    api_keys::{ApiKeys, CreatedApiKey, NewApiKey},
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
        Self::at(relay.address(), desktops, phones).await
    }

    /// The same on the relay that is reached at this address.
    pub async fn at(address: RelayAddress, desktops: usize, phones: usize) -> Self {
        let user = fresh_user();
        let token = token_for(user);
        let mut account = Account { address, user, token, desktops: Vec::new(), phones: Vec::new() };
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

    /// The client of this account's API keys.
    pub fn api_keys(&self) -> ApiKeys {
        ApiKeys::new(self.address.clone(), self.token.clone()).unwrap()
    }

    /// Makes an API key with these scopes.
    pub async fn api_key(&self, scopes: &str) -> CreatedApiKey {
        let key = NewApiKey { name: Some("test".to_owned()), scopes: scopes.parse().unwrap() };
        self.api_keys().create(&key).await.expect("the relay makes a key")
    }

    /// The same account and devices, with this token.
    pub fn with_token(&self, token: &str) -> Account {
        let (desktops, phones) = (self.desktops.clone(), self.phones.clone());
        Account { address: self.address.clone(), user: self.user, token: token.to_owned(), desktops, phones }
    }

    /// `POST /api/auth/logout` with this body: the status.
    pub async fn log_out(&self, body: &serde_json::Value) -> u16 {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let call = client.post(self.address.http("/api/auth/logout")).bearer_auth(&self.token).json(body);
        call.send().await.unwrap().status().as_u16()
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
