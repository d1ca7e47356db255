//! What the kernel says of this process, under the names that every Prometheus client uses. Linux only; elsewhere they are missing.

use super::text::Text;
use rustix::process::{Resource, getrlimit};
use std::fs;

/// Figures of this process at one moment.
#[derive(Clone, Copy, Debug)]
pub struct ProcessFigures {
    cpu_seconds: f64,
    resident_bytes: u64,
    virtual_bytes: u64,
    threads: u64,
    /// Since 1970.
    start_seconds: f64,
    open_descriptors: usize,
    /// None for any number.
    descriptors_max: Option<u64>,
}

/// What `/proc/self/stat` says, in its units.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    threads: u64,
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl ProcessFigures {
    /// Reads them; blocks for as long as it takes to list the open descriptors.
    pub fn read() -> Option<Self> {
        let stat = Stat::parse(&fs::read_to_string("/proc/self/stat").ok()?)?;
        let boot = boot_seconds(&fs::read_to_string("/proc/stat").ok()?)?;
        let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
        Some(ProcessFigures {
            cpu_seconds: stat.cpu_ticks as f64 / ticks_per_second,
            resident_bytes: stat.resident_pages * rustix::param::page_size() as u64,
            virtual_bytes: stat.virtual_bytes,
            threads: stat.threads,
            start_seconds: boot as f64 + stat.start_ticks as f64 / ticks_per_second,
            // The listing itself has one.
            open_descriptors: fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1),
            descriptors_max: getrlimit(Resource::Nofile).current,
        })
    }

    pub(super) fn write(&self, text: &mut Text) {
        text.counter("process_cpu_seconds_total", "Processor time of all threads.").is(self.cpu_seconds);
        text.gauge("process_resident_memory_bytes", "Resident memory.").is(self.resident_bytes);
        text.gauge("process_virtual_memory_bytes", "Address space.").is(self.virtual_bytes);
        text.gauge("process_threads", "Threads.").is(self.threads);
        text.gauge("process_start_time_seconds", "When the process started, in seconds since 1970.").is(self.start_seconds);
        text.gauge("process_open_fds", "Open file descriptors.").is(self.open_descriptors);
        let limit = self.descriptors_max.map_or_else(|| "+Inf".to_owned(), |limit| limit.to_string());
        text.gauge("process_max_fds", "Limit of open file descriptors.").is(limit);
    }
}

impl Stat {
    /// Fields by their numbers in proc(5). The command, field 2, may hold spaces and brackets, so counting starts behind its last one.
    fn parse(stat: &str) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Stat {
            cpu_ticks: field(14)? + field(15)?,
            threads: field(20)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

fn boot_seconds(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_command() {
        let stat = "42 (a ) b) c) S 4 5 6 7 8 9 10 11 12 13 120 30 16 17 18 19 7 21 5000 8192 12 25";
        let read = Stat { cpu_ticks: 150, threads: 7, start_ticks: 5_000, virtual_bytes: 8_192, resident_pages: 12 };
        assert_eq!(Stat::parse(stat), Some(read));
        assert_eq!(Stat::parse("42 (short) S 4"), None);
        assert_eq!(boot_seconds("cpu 1 2\nbtime 1800000000\nprocesses 5\n"), Some(1_800_000_000));
    }

    #[test]
    fn this_process_has_figures() {
        let figures = ProcessFigures::read().unwrap();
        let now = relay_actors::clock::EpochMs::now().0 as f64 / 1_000.0;
        assert!(figures.resident_bytes > 0 && figures.threads > 0 && figures.open_descriptors > 0, "{figures:?}");
        assert!(figures.start_seconds <= now + 1.0 && figures.start_seconds > now - 86_400.0, "{figures:?} at {now}");
    }
}
