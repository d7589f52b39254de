//! The owner of a control group: a pod, a container or a systemd unit.
//!
//! The path of a group has a pattern for each program that creates groups. The names are in files in which these
//! programs keep their state. isotherm queries none of these programs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use isotherm_fleet::Group;
use serde::Deserialize;

/// Maximum size of a state file.
const MAX_STATE: u64 = 4 << 20;
/// Number of minutes after which names that were not found are sought again.
const AGAIN: u32 = 10;

/// Names of control groups, by path.
#[derive(Debug, Default)]
pub struct Names(BTreeMap<String, Known>);

#[derive(Debug)]
struct Known {
    group: Group,
    /// minutes until the names are sought again
    again: u32,
}

impl Names {
    /// The names of these groups. Groups that are not among them are forgotten.
    pub fn resolve<'a>(
        &mut self,
        root: &Path,
        host: &str,
        paths: impl Iterator<Item = &'a str>,
    ) -> Vec<Group> {
        let mut before = std::mem::take(&mut self.0);
        let mut containers = None;
        let mut all = Vec::new();
        for path in paths {
            let known = before.remove(path).filter(|known| known.again > 0);
            let known = match known {
                Some(known) => Known { again: known.again - 1, ..known },
                None => {
                    let containers = containers.get_or_insert_with(|| ContainerLogs::read(root));
                    let group = Group { host: host.to_owned(), ..names(root, path, containers) };
                    Known { group, again: AGAIN }
                }
            };
            all.push(known.group.clone());
            self.0.insert(path.to_owned(), known);
        }
        all
    }
}

/// The parts of a group's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Place<'a> {
    /// number of the container, in hexadecimal
    container: Option<&'a str>,
    /// whether it belongs to a pod of Kubernetes
    in_pod: bool,
    /// systemd unit
    unit: Option<&'a str>,
    /// last part of the path
    last: &'a str,
}

impl<'a> Place<'a> {
    fn of(path: &'a str) -> Self {
        let mut place = Place { last: "/", ..Place::default() };
        for part in path.split('/').filter(|part| !part.is_empty()) {
            place.last = part;
            // Docker and containerd name a group by the number alone, or systemd by `cri-containerd-NUMBER.scope`.
            let stem = part.strip_suffix(".scope").unwrap_or(part);
            let number = stem.rsplit(['-', ':']).next().unwrap_or(stem);
            if is_number(number) {
                // Conmon watches a container of Podman or CRI-O, and is not part of it.
                place.container = Some(number).filter(|_| !stem.contains("conmon"));
            }
            place.in_pod |= part.starts_with("kubepods") || part.contains("-kubepods");
            if part.ends_with(".service") || part.ends_with(".scope") {
                place.unit = Some(part);
            }
        }
        if place.container.is_some() || place.in_pod {
            place.unit = None;
        }
        place
    }
}

/// Whether this is the number of a container: 64 hexadecimal digits.
fn is_number(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The names of the group at `path`.
fn names(root: &Path, path: &str, logs: &ContainerLogs) -> Group {
    let place = Place::of(path);
    let mut group = Group { cgroup: path.to_owned(), ..Group::default() };
    group.unit = place.unit.unwrap_or_default().to_owned();
    if let Some(number) = place.container {
        let found = logs.find(number).or_else(|| of_docker(root, number));
        if let Some(found) = found.or_else(|| of_podman(root, number)) {
            (group.pod, group.namespace) = (found.pod, found.namespace);
            (group.container, group.image) = (found.container, found.image);
            group.service = found.service;
        }
    }
    if group.service.is_empty() {
        group.service = match (&*group.pod, &*group.container, place.unit) {
            ("", "", Some(unit)) => of_unit(path, unit).to_owned(),
            ("", "", None) => place.last.to_owned(),
            ("", container, _) => container.to_owned(),
            // The service `web` of another namespace is another service.
            (pod, ..) if group.namespace.is_empty() => owner(pod).to_owned(),
            (pod, ..) => format!("{}/{}", group.namespace, owner(pod)),
        };
    }
    group
}

/// The service of a unit. A session is that of its user.
fn of_unit<'a>(path: &'a str, unit: &'a str) -> &'a str {
    let name =
        unit.strip_suffix(".service").or_else(|| unit.strip_suffix(".scope")).unwrap_or(unit);
    let user = || {
        path.split('/')
            .find_map(|part| part.strip_suffix(".slice").filter(|s| s.starts_with("user-")))
    };
    if name.starts_with("session-") { user().unwrap_or(name) } else { name }
}

/// The owner of a pod, by the way in which Kubernetes names pods: `NAME-HASH-RANDOM` of a Deployment, `NAME-TIME-RANDOM`
/// of a CronJob, `NAME-RANDOM` of a DaemonSet or a Job, `NAME-NUMBER` of a StatefulSet. Other pods are their own owners.
fn owner(pod: &str) -> &str {
    let Some((front, last)) = pod.rsplit_once('-') else { return pod };
    let is_ordinal = last.len() <= 5 && last.bytes().all(|b| b.is_ascii_digit());
    if is_ordinal {
        return front;
    }
    if !(last.len() == 5 && is_random(last)) {
        return pod;
    }
    match front.rsplit_once('-') {
        Some((name, hash)) if (6..=10).contains(&hash.len()) && is_random(hash) => name,
        // Minutes since 1970.
        Some((name, time)) if time.len() == 8 && time.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => front,
    }
}

/// Whether the characters are those that Kubernetes uses in random names: no vowels, and no digits like them.
fn is_random(text: &str) -> bool {
    text.bytes().all(|b| b"bcdfghjklmnpqrstvwxz2456789".contains(&b))
}

/// The names of a container.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    pod: String,
    namespace: String,
    container: String,
    image: String,
    /// empty: the owner of the pod, or the container
    service: String,
}

/// The names of the logs of containers in pods: `POD_NAMESPACE_CONTAINER-NUMBER.log`. The kubelet makes one for each.
struct ContainerLogs(Vec<String>);

impl ContainerLogs {
    fn read(root: &Path) -> Self {
        let entries = fs::read_dir(root.join("var/log/containers")).into_iter().flatten().flatten();
        ContainerLogs(entries.filter_map(|e| e.file_name().into_string().ok()).collect())
    }

    fn find(&self, number: &str) -> Option<Found> {
        let end = format!("-{number}.log");
        let stem = self.0.iter().find_map(|name| name.strip_suffix(&end))?;
        let [pod, namespace, container] = stem.split('_').collect::<Vec<_>>().try_into().ok()?;
        Some(Found {
            pod: pod.to_owned(),
            namespace: namespace.to_owned(),
            container: container.to_owned(),
            ..Found::default()
        })
    }
}

/// The state of a container of Docker, as far as it is used.
#[derive(Deserialize)]
struct DockerState {
    #[serde(rename = "Name", default)]
    name: String,
    #[serde(rename = "Config", default)]
    config: DockerConfig,
}

#[derive(Deserialize, Default)]
struct DockerConfig {
    #[serde(rename = "Image", default)]
    image: String,
    #[serde(rename = "Labels", default)]
    labels: Option<BTreeMap<String, String>>,
}

fn of_docker(root: &Path, number: &str) -> Option<Found> {
    let path = root.join("var/lib/docker/containers").join(number).join("config.v2.json");
    let state: DockerState = json(&path)?;
    let labels = state.config.labels.unwrap_or_default();
    let label = |name: &str| labels.get(name).cloned().unwrap_or_default();
    let in_pod = Some(label("io.kubernetes.container.name")).filter(|name| !name.is_empty());
    Some(Found {
        pod: label("io.kubernetes.pod.name"),
        namespace: label("io.kubernetes.pod.namespace"),
        container: in_pod.unwrap_or_else(|| state.name.trim_start_matches('/').to_owned()),
        image: state.config.image,
        service: label("com.docker.compose.service"),
    })
}

/// A container in the list of Podman or CRI-O.
#[derive(Deserialize)]
struct PodmanState {
    id: String,
    #[serde(default)]
    names: Vec<String>,
}

fn of_podman(root: &Path, number: &str) -> Option<Found> {
    let lists = ["var/lib/containers/storage/overlay-containers/containers.json"];
    let found = lists.iter().find_map(|list| {
        let all: Vec<PodmanState> = json(&root.join(list))?;
        all.into_iter().find(|state| state.id == number)
    })?;
    Some(Found { container: found.names.into_iter().next()?, ..Found::default() })
}

/// A state file, if it is there and has the expected form.
fn json<T: for<'a> Deserialize<'a>>(path: &Path) -> Option<T> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(MAX_STATE).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: &str = "4f1c2d3e4f5a6b7c8d9e0f1a2b3c4d5e6f7a8b9c0d1e2f3a4b5c6d7e8f9a0b1c";

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path.replace("NUMBER", N));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text.replace("NUMBER", N)).unwrap();
        }
        dir
    }

    fn of(root: &Path, path: &str) -> Group {
        let path = path.replace("NUMBER", N);
        let group = Names::default().resolve(root, "h", std::iter::once(&*path)).remove(0);
        assert_eq!((&*group.cgroup, &*group.host), (&*path, "h"));
        group
    }

    #[test]
    fn a_unit_of_systemd() {
        let root = root(&[]);
        for (path, service, unit) in [
            ("/system.slice/ssh.service", "ssh", "ssh.service"),
            (
                "/system.slice/system-getty.slice/getty@tty1.service",
                "getty@tty1",
                "getty@tty1.service",
            ),
            ("/user.slice/user-1000.slice/session-3.scope", "user-1000", "session-3.scope"),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.service",
                "app-x",
                "app-x.service",
            ),
            (
                "/system.slice/postgresql@15-main.service/worker",
                "postgresql@15-main",
                "postgresql@15-main.service",
            ),
            ("/batch/job7", "job7", ""),
            ("/", "/", ""),
        ] {
            let group = of(root.path(), path);
            assert_eq!((&*group.service, &*group.unit), (service, unit), "{path}");
        }
    }

    #[test]
    fn a_container_of_docker() {
        let state = r#"{"Name":"/web-1","Config":{"Image":"nginx:1.27","Env":["SECRET=1"],
            "Labels":{"com.docker.compose.service":"web"}}}"#;
        let root = root(&[("var/lib/docker/containers/NUMBER/config.v2.json", state)]);
        for path in ["/docker/NUMBER", "/system.slice/docker-NUMBER.scope"] {
            let group = of(root.path(), path);
            let names = (&*group.service, &*group.container, &*group.image, &*group.unit);
            assert_eq!(names, ("web", "web-1", "nginx:1.27", ""));
        }
        let other = tempfile::tempdir().unwrap();
        assert_eq!(of(other.path(), "/docker/NUMBER").service, N);
    }

    #[test]
    fn a_container_of_podman() {
        let list = r#"[{"id":"NUMBER","names":["db"],"image":"x"},{"id":"other"}]"#;
        let root = root(&[("var/lib/containers/storage/overlay-containers/containers.json", list)]);
        for path in
            ["/machine.slice/libpod-NUMBER.scope", "/machine.slice/libpod-NUMBER.scope/container"]
        {
            let group = of(root.path(), path);
            assert_eq!((&*group.service, &*group.container), ("db", "db"), "{path}");
        }
        let conmon = of(root.path(), "/machine.slice/libpod-conmon-NUMBER.scope");
        assert_eq!(conmon.container, "");
    }

    #[test]
    fn a_container_in_a_pod() {
        let root = root(&[("var/log/containers/shop-7d4b9c6f5d-x2v8k_prod_main-NUMBER.log", "")]);
        let pod = "kubepods-burstable-pod1b2c_3d.slice";
        for path in [
            "/kubepods/burstable/pod1b2c-3d/NUMBER".to_owned(),
            format!("/kubepods.slice/kubepods-burstable.slice/{pod}/cri-containerd-NUMBER.scope"),
            format!("/kubepods.slice/kubepods-burstable.slice/{pod}/crio-NUMBER.scope"),
            format!("/kubelet.slice/kubelet-kubepods.slice/x.slice/{pod}/cri-containerd-NUMBER.scope"),
            "/system.slice/containerd.service/kubepods-burstable-pod1b2c.slice:cri-containerd:NUMBER".to_owned(),
        ] {
            let group = of(root.path(), &path);
            let names = [&group.service, &group.pod, &group.namespace, &group.container, &group.unit];
            let expected = ["prod/shop", "shop-7d4b9c6f5d-x2v8k", "prod", "main", ""];
            assert_eq!(names, expected, "{path}");
        }
    }

    #[test]
    fn the_owner_of_a_pod() {
        for (pod, expected) in [
            ("shop-7d4b9c6f5d-x2v8k", "shop"),
            ("web-front-6b7c9d8f4-bq2lz", "web-front"),
            ("node-exporter-8xz4k", "node-exporter"),
            ("postgres-0", "postgres"),
            ("backup-29930880-x2v8k", "backup"),
            ("kafka-broker-12", "kafka-broker"),
            ("etcd-control-plane", "etcd-control-plane"),
            ("debug", "debug"),
        ] {
            assert_eq!(owner(pod), expected);
        }
    }

    #[test]
    fn names_that_come_later_are_found() {
        let dir = root(&[]);
        let (path, mut names) = (format!("/kubepods/podx/{N}"), Names::default());
        let mut service =
            || names.resolve(dir.path(), "h", std::iter::once(&*path)).remove(0).service;
        assert_eq!(service(), N);
        fs::create_dir_all(dir.path().join("var/log/containers")).unwrap();
        fs::write(dir.path().join(format!("var/log/containers/a-0_ns_c-{N}.log")), "").unwrap();
        assert!((0..=AGAIN).any(|_| service() == "ns/a"));
    }
}
