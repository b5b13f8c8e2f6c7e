//! The names of Kubernetes pods, without access to the cluster's API.
//!
//! A cgroup path contains only the UID of a pod. The kubelet keeps the logs of a pod in
//! `/var/log/pods/NAMESPACE_NAME_UID`, which only root can write to, so these names are reliable. Where that directory
//! cannot be read, the names come from the process's own environment: the variables that manifests usually set from the
//! downward API, and `HOSTNAME`, which is the pod's name unless the pod uses the host's network. A process can put any
//! name there, but only a name of the form that Kubernetes allows is used, and only for a process in a pod.

use std::fs;
use std::path::{Path, PathBuf};

use makeroom_ordered::OrderedMap;

/// The kubelet's log directory.
const LOGS: &str = "root/var/log/pods";
/// Maximum number of its entries to read; a node has at most a few hundred pods.
const MOST_PODS: usize = 10_000;
/// Variables with the pod's name, most reliable first.
const NAMES: [&str; 4] = ["POD_NAME", "MY_POD_NAME", "K8S_POD_NAME", "HOSTNAME"];
/// Variables with the pod's namespace.
const NAMESPACES: [&str; 3] = ["POD_NAMESPACE", "MY_POD_NAMESPACE", "K8S_NAMESPACE"];

/// A pod's name; its parts are empty if unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodName {
    /// The namespace.
    pub namespace: String,
    /// The pod's own name.
    pub name: String,
}

impl PodName {
    /// The name in the environment of a process.
    pub(super) fn of_environment(environment: &[u8]) -> Self {
        let value = |names: &[&str]| {
            let find = |name: &&str| {
                environment.split(|&byte| byte == 0).find_map(|variable| {
                    let value = variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
                    std::str::from_utf8(value).ok().filter(|value| is_name(value))
                })
            };
            names.iter().find_map(find).unwrap_or_default().to_owned()
        };
        Self { namespace: value(&NAMESPACES), name: value(&NAMES) }
    }
}

/// The pods of this node by UID, read on first use.
#[derive(Debug)]
pub(super) struct Pods {
    first_process: PathBuf,
    names: Option<OrderedMap<String, PodName>>,
}

impl Pods {
    /// The pods of the processes under `root`.
    pub(super) fn read(root: &Path) -> Self {
        Self { first_process: root.join("1"), names: None }
    }

    /// The name of a pod; `None` if it is unknown here.
    pub(super) fn name(&mut self, uid: &str) -> Option<PodName> {
        let names = self.names.get_or_insert_with(|| {
            let entries = fs::read_dir(self.first_process.join(LOGS)).into_iter().flatten().flatten();
            let names = entries.take(MOST_PODS).filter_map(|entry| parse(entry.file_name().to_str()?));
            names.collect()
        });
        names.get(uid).cloned()
    }
}

/// Parses the name of a pod's log directory. Neither namespaces nor names of pods contain an underscore.
fn parse(directory: &str) -> Option<(String, PodName)> {
    let mut parts = directory.split('_');
    let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || !is_name(namespace) || !is_name(name) {
        return None;
    }
    Some((uid.to_owned(), PodName { namespace: namespace.to_owned(), name: name.to_owned() }))
}

/// Whether Kubernetes allows this name (RFC 1123).
fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    (1..=253).contains(&text.len()) && text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(namespace: &str, name: &str) -> PodName {
        PodName { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn the_kubelets_directories_name_pods() {
        let root = std::env::temp_dir().join(format!("makeroom-pods-{}", std::process::id()));
        let uid = "0a1b2c3d-1111-2222-3333-444455556666";
        for name in [&format!("research_train-0_{uid}")[..], "a_b", "UPPER_x_1", "a_b_c_d"] {
            fs::create_dir_all(root.join("1").join(LOGS).join(name)).unwrap();
        }
        let mut pods = Pods::read(&root);
        assert_eq!(pods.name(uid), Some(pod("research", "train-0")));
        assert_eq!((pods.name("1"), pods.name("c"), pods.name("")), (None, None, None));
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(Pods::read(&root).name(uid), None);
    }

    #[test]
    fn an_environment_names_a_pod_only_in_the_form_of_kubernetes() {
        let read = |text: &str| PodName::of_environment(text.as_bytes());
        assert_eq!(read("A=1\0POD_NAMESPACE=research\0HOSTNAME=train-0\0"), pod("research", "train-0"));
        assert_eq!(read("HOSTNAME=host\0POD_NAME=train-1\0"), pod("", "train-1"));
        let long = "x".repeat(254);
        for hostile in ["a\"} 1\n", "a b", "\u{202e}", "A", "", &long] {
            let environment = format!("POD_NAME={hostile}\0POD_NAMESPACE={hostile}\0XPOD_NAME=x\0");
            assert_eq!(read(&environment), PodName::default(), "{hostile:?}");
        }
    }
}
