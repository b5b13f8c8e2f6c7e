//! The container, pod, batch job or systemd unit of a process, parsed from its cgroup path. The formats are
//! conventions of the programs that create the groups.

/// What a process is part of. Several fields can be set: a container in a pod, or in a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Belonging {
    /// Container ID: 64 hexadecimal digits, or a name for LXC.
    pub container: Option<String>,
    /// Container runtime: `docker`, `podman`, `containerd`, `cri-o`, `lxc`.
    pub runtime: Option<&'static str>,
    /// Pod UID in Kubernetes.
    pub pod: Option<String>,
    /// Job ID in Slurm.
    pub slurm_job: Option<String>,
    /// systemd unit: `jupyter.service`.
    pub unit: Option<String>,
    /// Whether the unit belongs to a user's systemd instance.
    pub is_users_unit: bool,
}

impl Belonging {
    /// Parses the content of `/proc/PID/cgroup`.
    pub fn parse(text: &str) -> Self {
        let mut belonging = Self::default();
        for path in text.lines().filter_map(|line| line.splitn(3, ':').nth(2)) {
            let parts: Vec<&str> = path.split('/').filter(|part| is_name(part)).collect();
            for (position, part) in parts.iter().enumerate() {
                let before = position.checked_sub(1).and_then(|before| parts.get(before)).copied();
                belonging.read(part, before);
            }
        }
        belonging
    }

    fn read(&mut self, part: &str, before: Option<&str>) {
        let stem = part.strip_suffix(".scope").or_else(|| part.strip_suffix(".slice")).unwrap_or(part);
        // systemd encodes the hierarchy with hyphens: kubepods-burstable-pod1234_….slice
        if let Some(at) =
            stem.find("pod").filter(|_| stem.starts_with("kubepods-") || before.is_some_and(is_of_pods))
        {
            let after = stem.rfind("-pod").map_or(at + 3, |at| at + 4);
            let identity = stem.get(after..).unwrap_or_default().replace('_', "-");
            if is_pod(&identity) {
                self.pod = Some(identity);
            }
        }
        let named = [
            ("docker-", "docker"),
            ("cri-containerd-", "containerd"),
            ("crio-", "cri-o"),
            ("libpod-", "podman"),
            ("nerdctl-", "containerd"),
        ];
        for (prefix, runtime) in named {
            if let Some(identity) = stem.strip_prefix(prefix).filter(|identity| is_container(identity)) {
                self.contain(identity, runtime);
            }
        }
        if is_container(stem) {
            let runtime = match before {
                Some("docker") => "docker",
                Some("libpod_parent" | "machine.slice") => "podman",
                _ => "containerd",
            };
            self.contain(stem, runtime);
        }
        if let Some(name) =
            part.strip_prefix("lxc.payload.").or_else(|| (before == Some("lxc")).then_some(part))
        {
            self.contain(name, "lxc");
        }
        if let Some(job) = part.strip_prefix("job_").filter(|job| is_number(job)) {
            self.slurm_job = Some(job.to_owned());
        }
        if let Some(name) = part.strip_suffix(".service") {
            let is_manager = name.starts_with("user@");
            self.is_users_unit |= is_manager;
            if !is_manager && name != "init" {
                self.unit = Some(part.to_owned());
            }
        }
    }

    fn contain(&mut self, identity: &str, runtime: &'static str) {
        self.container = Some(identity.to_owned());
        self.runtime = Some(runtime);
    }

    /// The first twelve characters of the container ID, as people type it.
    pub fn short_container(&self) -> Option<&str> {
        self.container
            .as_deref()
            .map(|identity| identity.get(..12).filter(|_| is_container(identity)).unwrap_or(identity))
    }
}

/// Whether a path component has only the characters that runtimes and systemd use. Users can create cgroups with any
/// name, and these names are printed, even in commands to paste.
fn is_name(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:@\\+".contains(&byte))
}

fn is_of_pods(part: &str) -> bool {
    matches!(part, "kubepods" | "burstable" | "besteffort" | "guaranteed") || part.starts_with("kubepods")
}

fn is_container(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A UUID, or the hash of a static pod.
fn is_pod(text: &str) -> bool {
    text.len() >= 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f2a9c0d1e4b5a69788796a5b4c3d2e1f00112233445566778899aabbccddeef";

    #[test]
    fn reads_the_forms_that_are_in_use() {
        let docker = Belonging::parse(&format!("0::/system.slice/docker-{ID}.scope\n"));
        assert_eq!((docker.container.as_deref(), docker.runtime), (Some(ID), Some("docker")));
        assert_eq!(docker.short_container(), Some("3f2a9c0d1e4b"));
        let docker_v1 = Belonging::parse(&format!("12:memory:/docker/{ID}\n"));
        assert_eq!((docker_v1.container.as_deref(), docker_v1.runtime), (Some(ID), Some("docker")));
        let podman = Belonging::parse(&format!("0::/machine.slice/libpod-{ID}.scope/container\n"));
        assert_eq!(podman.runtime, Some("podman"));
        let lxc = Belonging::parse("0::/lxc.payload.train/system.slice/ssh.service\n");
        assert_eq!((lxc.container.as_deref(), lxc.unit.as_deref()), (Some("train"), Some("ssh.service")));
    }

    #[test]
    fn reads_pods_of_both_drivers() {
        let pod = "0a1b2c3d-1111-2222-3333-444455556666";
        let systemd = format!(
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice/cri-containerd-{ID}.scope",
            pod.replace('-', "_")
        );
        let cgroupfs = format!("4:devices:/kubepods/besteffort/pod{pod}/{ID}");
        for text in [systemd, cgroupfs] {
            let belonging = Belonging::parse(&text);
            assert_eq!(belonging.pod.as_deref(), Some(pod), "{text}");
            assert_eq!(belonging.container.as_deref(), Some(ID));
            assert_eq!(belonging.runtime, Some("containerd"));
        }
    }

    #[test]
    fn names_that_would_do_something_to_a_terminal_or_a_shell_are_left_out() {
        for name in
            ["$(reboot).service", "a b.service", "x;y.service", "\u{1b}[2J.service", "'.service", "ä.service"]
        {
            assert_eq!(Belonging::parse(&format!("0::/user@1000.service/{name}")).unit, None, "{name}");
            let group = format!("0::/lxc/{name}");
            assert_eq!(Belonging::parse(&group).container, None, "{name}");
        }
        let escaped = Belonging::parse("0::/system.slice/fsck@dev-disk\\x2d1.service");
        assert_eq!(escaped.unit.as_deref(), Some("fsck@dev-disk\\x2d1.service"));
    }

    #[test]
    fn reads_slurm_and_units_and_leaves_the_rest() {
        let slurm = Belonging::parse("0::/system.slice/slurmstepd.scope/job_8812/step_0/user/task_0");
        assert_eq!(slurm.slurm_job.as_deref(), Some("8812"));
        let unit = Belonging::parse("0::/system.slice/ollama.service");
        assert_eq!(unit.unit.as_deref(), Some("ollama.service"));
        assert!(!unit.is_users_unit);
        let own =
            Belonging::parse("0::/user.slice/user-1000.slice/user@1000.service/app.slice/train.service");
        assert_eq!((own.unit.as_deref(), own.is_users_unit), (Some("train.service"), true));
        let login = Belonging::parse("0::/user.slice/user-1000.slice/session-3.scope\n1:cpu:/\n\u{1}");
        assert_eq!(login, Belonging::default());
        let nothing = Belonging::parse("0::/user.slice/user-1000.slice/user@1000.service/app.slice");
        assert_eq!(nothing.unit, None);
    }
}
