//! What the kernel says about a process: CPU time, resident memory, its peak. Linux only; elsewhere the figures are absent.

use rustix::process::{Resource, getrlimit, setrlimit};
use std::fs;

/// CPU seconds at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot {
    /// User and system time of the server, all threads; none without a pid, or when it is gone.
    pub server: Option<f64>,
    /// The same of this process.
    pub generator: f64,
    /// Busy time of the whole machine, steal included: shows whether something else ran.
    pub machine: f64,
}

/// Reads the three of them.
pub fn snapshot(server: Option<u32>) -> Snapshot {
    Snapshot {
        server: server.and_then(cpu_seconds),
        generator: cpu_seconds(std::process::id()).unwrap_or_default(),
        machine: fs::read_to_string("/proc/stat").ok().and_then(|stat| machine_ticks(&stat)).unwrap_or_default() / ticks_per_second(),
    }
}

/// User and system CPU time of a process in seconds.
pub fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(process_ticks(&stat)? / ticks_per_second())
}

/// Resident memory now, in KiB.
pub fn resident_kib(pid: u32) -> Option<f64> {
    status_kib(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmRSS:")
}

/// The most resident memory since the start or since [`reset_peak`], in KiB.
pub fn peak_kib(pid: u32) -> Option<f64> {
    status_kib(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmHWM:")
}

/// Lets the peak begin again at the present size. Needs the same user as the process; without that right the peak stays what it was.
pub fn reset_peak(pid: u32) {
    let _not_permitted = fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

/// Raises the soft limit on open files to the hard one: each pair holds two sockets here.
pub fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _not_permitted = setrlimit(Resource::Nofile, limit);
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// Fields 14 and 15 of `/proc/PID/stat`. The command in field 2 may hold spaces and brackets, so counting starts behind its last one.
fn process_ticks(stat: &str) -> Option<f64> {
    let (_, behind_command) = stat.rsplit_once(')')?;
    let mut fields = behind_command.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Everything but idle and waiting for disks in the first line of `/proc/stat`.
fn machine_ticks(stat: &str) -> Option<f64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks = line.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>().ok()?;
    // user nice system idle iowait irq softirq steal; guest time is part of user time.
    Some([0, 1, 2, 5, 6, 7].into_iter().filter_map(|column| ticks.get(column)).sum())
}

fn status_kib(status: &str, key: &str) -> Option<f64> {
    status.lines().find_map(|line| line.strip_prefix(key))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_spaces_and_brackets_does_not_shift_the_fields() {
        let stat = "42 (a ) b) c) S 1 2 3 4 5 6 7 8 9 10 120 30 0 0 20 0 4 0 999";
        assert_eq!(process_ticks(stat), Some(150.0));
        assert_eq!(process_ticks("42 (short) S 1"), None);
    }

    #[test]
    fn idle_and_guest_time_are_not_busy_time() {
        assert_eq!(machine_ticks("cpu  1 2 4 1000 2000 8 16 32 64 128\ncpu0 9 9 9\n"), Some(63.0));
        assert_eq!(machine_ticks("intr 5\n"), None);
    }

    #[test]
    fn a_status_line_is_found_by_its_key() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t     512 kB\n";
        assert_eq!(status_kib(status, "VmRSS:"), Some(512.0));
        assert_eq!(status_kib(status, "VmHWM:"), Some(2048.0));
        assert_eq!(status_kib(status, "VmSwap:"), None);
    }

    #[test]
    fn this_process_has_memory_and_a_missing_one_has_not() {
        assert!(resident_kib(std::process::id()).is_some_and(|kib| kib > 0.0));
        assert_eq!(cpu_seconds(u32::MAX), None);
    }
}
