//! The owner of a control group: a pod, a container or a systemd unit.
//!
//! The path of a group has a pattern for each program that creates groups. The names are in files in which these
//! programs keep their state. isotherm queries none of these programs.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use isotherm_fleet::Group;
use isotherm_linux::sys::read_regular;
use serde::Deserialize;

/// Maximum size of a state file.
const MAX_STATE: u64 = 4 << 20;
/// Number of minutes for which names are kept. Names that were not found may exist later.
const AGAIN: u32 = 10;

/// Names of control groups, by path.
#[derive(Debug, Default)]
pub struct GroupNames(BTreeMap<String, Known>);

#[derive(Debug)]
struct Known {
    group: Group,
    /// minutes until the names are sought again
    again: u32,
}

impl GroupNames {
    /// Finds the names of groups when they first appear: the state of a container goes with it.
    pub fn meet<'a>(&mut self, root: &Path, host: &str, paths: impl Iterator<Item = &'a str>) {
        let states = States::new(root);
        for path in paths {
            if !self.0.contains_key(path) {
                let group = Group { host: host.to_owned(), ..names(path, &states) };
                // The state may be incomplete at this time, so that the names are sought again.
                self.0.insert(path.to_owned(), Known { group, again: 0 });
            }
        }
    }

    /// The names of these groups. Groups that are not among them are forgotten.
    pub fn resolve<'a>(
        &mut self,
        root: &Path,
        host: &str,
        paths: impl Iterator<Item = &'a str>,
    ) -> Vec<Group> {
        let mut before = std::mem::take(&mut self.0);
        let states = States::new(root);
        let mut all = Vec::new();
        for path in paths {
            let known = match before.remove(path) {
                Some(known) if known.again > 0 => Known { again: known.again - 1, ..known },
                known => {
                    let sought = Group { host: host.to_owned(), ..names(path, &states) };
                    // The path has the number of the container, which no other one gets.
                    let kept = known.map(|known| known.group);
                    let kept = kept.filter(|kept| nr_found(kept) > nr_found(&sought));
                    Known { group: kept.unwrap_or(sought), again: AGAIN - 1 }
                }
            };
            all.push(known.group.clone());
            self.0.insert(path.to_owned(), known);
        }
        all
    }
}

/// Number of the names that are in state files.
fn nr_found(group: &Group) -> usize {
    [&group.pod, &group.container, &group.image].iter().filter(|name| !name.is_empty()).count()
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
    /// uid, if the group is below the systemd of this user, who chooses all names there
    user: Option<&'a str>,
    /// last part of the path
    last: &'a str,
}

impl<'a> Place<'a> {
    fn of(path: &'a str) -> Self {
        let mut place = Place { last: "/", ..Place::default() };
        for part in path.split('/').filter(|part| !part.is_empty()) {
            place.last = part;
            // What is below this is named by the container (LXC).
            if part.starts_with("lxc.payload.") {
                place.unit = None;
                break;
            }
            // Docker and containerd name a group by the number alone, or systemd by `cri-containerd-NUMBER.scope`.
            let stem = part.strip_suffix(".scope").unwrap_or(part);
            let number = stem.rsplit(['-', ':']).next().unwrap_or(stem);
            // A container may create groups with any name below its own group.
            if is_number(number) && place.container.is_none() && place.user.is_none() {
                // Conmon watches a container of Podman or CRI-O, and is not part of it.
                place.container = Some(number).filter(|_| !stem.contains("conmon"));
            }
            if place.container.is_none() && place.user.is_none() {
                let unit = part.strip_prefix("user@");
                place.user = unit.and_then(|unit| unit.strip_suffix(".service"));
            }
            place.in_pod |= part.starts_with("kubepods") || part.contains("-kubepods");
            // The groups below a unit belong to it, whatever their names are; but a user's manager starts units.
            let is_outermost = place.unit.is_none_or(|unit| unit.starts_with("user@"));
            if is_outermost && (part.ends_with(".service") || part.ends_with(".scope")) {
                place.unit = Some(part);
            }
        }
        place.in_pod &= place.user.is_none();
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
fn names(path: &str, states: &States<'_>) -> Group {
    let place = Place::of(path);
    let mut group = Group { cgroup: path.to_owned(), ..Group::default() };
    group.unit = place.unit.unwrap_or_default().to_owned();
    if let Some(found) = place.container.and_then(|number| states.find(number)) {
        (group.pod, group.namespace) = (found.pod, found.namespace);
        (group.container, group.image) = (found.container, found.image);
        group.service = found.service;
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
    // The service `web` of a user is not that of the machine.
    if let Some(user) = place.user {
        group.service = format!("user-{user}/{}", group.service);
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

/// The owner of a pod, by the names that Kubernetes gives: `NAME-HASH-RANDOM` of a Deployment, `NAME-TIME-RANDOM`
/// of a CronJob, `NAME-RANDOM` of a DaemonSet or a Job, `NAME-NUMBER` of a StatefulSet. Other pods are their own
/// owners.
fn owner(pod: &str) -> &str {
    let Some((front, last)) = pod.rsplit_once('-') else { return pod };
    let are_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let template = front.rsplit_once('-').filter(|(_, part)| {
        // A hash, or minutes since 1970.
        (6..=10).contains(&part.len()) && is_random(part) || part.len() == 8 && are_digits(part)
    });
    // One random part in 850 has digits only.
    match template {
        Some((name, _)) if last.len() == 5 && is_random(last) => name,
        _ if last.len() == 5 && is_random(last) => front,
        _ if last.len() <= 5 && are_digits(last) => front,
        _ => pod,
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

/// What the programs that create containers keep on disk. One minute reads each list once.
struct States<'a> {
    root: &'a Path,
    /// The names of the logs of containers in pods: `POD_NAMESPACE_CONTAINER-NUMBER.log`. The kubelet makes one for each.
    logs: OnceCell<Vec<String>>,
    stored: OnceCell<Vec<StoredContainer>>,
}

impl<'a> States<'a> {
    fn new(root: &'a Path) -> Self {
        States { root, logs: OnceCell::new(), stored: OnceCell::new() }
    }

    /// The kubelet's names go before those of the runtime. Only the runtime has the image.
    fn find(&self, number: &str) -> Option<Found> {
        let kept = of_docker(self.root, number).or_else(|| of_oci(self.root, number));
        let kept = kept.or_else(|| self.of_storage(number));
        match (self.of_log(number), kept) {
            (Some(logged), Some(kept)) => Some(Found { image: kept.image, ..logged }),
            (logged, kept) => logged.or(kept),
        }
    }

    fn of_log(&self, number: &str) -> Option<Found> {
        let logs = self.logs.get_or_init(|| {
            let entries = fs::read_dir(self.root.join("var/log/containers"));
            let entries = entries.into_iter().flatten().flatten();
            entries.filter_map(|e| e.file_name().into_string().ok()).collect()
        });
        let end = format!("-{number}.log");
        let stem = logs.iter().find_map(|name| name.strip_suffix(&end))?;
        let [pod, namespace, container] = stem.split('_').collect::<Vec<_>>().try_into().ok()?;
        Some(Found {
            pod: pod.to_owned(),
            namespace: namespace.to_owned(),
            container: container.to_owned(),
            ..Found::default()
        })
    }

    fn of_storage(&self, number: &str) -> Option<Found> {
        let stored = self.stored.get_or_init(|| {
            let lists = STORAGE_LISTS.iter().filter_map(|list| json(&self.root.join(list)));
            lists.flat_map(|list: Vec<StoredContainer>| list).collect()
        });
        let found = stored.iter().find(|container| container.id == number)?;
        let metadata: StoredMetadata = serde_json::from_str(&found.metadata).unwrap_or_default();
        let container = found.names.first()?.clone();
        Some(Found { container, image: metadata.image_name, ..Found::default() })
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

/// Where OCI runtimes keep a folder for each container: those of containerd, then those of CRI-O. The last one has the
/// containers of containerd whose runtime is neither runc nor crun.
const OCI_ROOTS: [&str; 4] = [
    "run/containerd/runc/k8s.io",
    "run/crun",
    "run/runc",
    "run/containerd/io.containerd.runtime.v2.task/k8s.io",
];

/// A container of an OCI runtime: the `state.json` of runc, or a `config.json`, of which crun keeps a copy.
#[derive(Deserialize)]
struct OciState {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    config: RuncConfig,
}

#[derive(Deserialize, Default)]
struct RuncConfig {
    /// the annotations, as `NAME=VALUE`
    #[serde(default)]
    labels: Vec<String>,
}

impl OciState {
    /// The value of the first of these annotations, by containerd and by CRI-O.
    fn annotation(&self, names: [&str; 2]) -> String {
        let of_runc = |name: &str| {
            let mut labels = self.config.labels.iter();
            labels.find_map(|label| label.strip_prefix(name)?.strip_prefix('='))
        };
        let value = |name| self.annotations.get(name).map(String::as_str).or_else(|| of_runc(name));
        names.into_iter().find_map(value).unwrap_or_default().to_owned()
    }
}

fn of_oci(root: &Path, number: &str) -> Option<Found> {
    let state = OCI_ROOTS.iter().find_map(|folder| {
        let folder = root.join(folder).join(number);
        json(&folder.join("state.json")).or_else(|| json(&folder.join("config.json")))
    });
    let state: OciState = state?;
    let pod = state.annotation(["io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"]);
    let namespace =
        state.annotation(["io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"]);
    // A container of another program, such as Podman.
    if pod.is_empty() {
        return None;
    }
    let kind =
        state.annotation(["io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"]);
    // It holds the namespaces of the pod, and runs the same image in every pod.
    if kind == "sandbox" {
        return Some(Found { pod, namespace, ..Found::default() });
    }
    let container =
        state.annotation(["io.kubernetes.cri.container-name", "io.kubernetes.container.name"]);
    let image = state.annotation(["io.kubernetes.cri.image-name", "io.kubernetes.cri-o.ImageName"]);
    Some(Found { pod, namespace, container, image, ..Found::default() })
}

/// Lists of the containers of Podman, and of CRI-O: those that stay, those of `podman run --rm`, and all of those in its
/// transient mode.
const STORAGE_LISTS: [&str; 3] = [
    "var/lib/containers/storage/overlay-containers/containers.json",
    "var/lib/containers/storage/overlay-containers/volatile-containers.json",
    "run/containers/storage/overlay-containers/volatile-containers.json",
];

#[derive(Deserialize)]
struct StoredContainer {
    id: String,
    #[serde(default)]
    names: Vec<String>,
    /// JSON
    #[serde(default)]
    metadata: String,
}

#[derive(Deserialize, Default)]
struct StoredMetadata {
    #[serde(rename = "image-name", default)]
    image_name: String,
}

/// A state file, if it is there and has the expected form.
fn json<T: for<'a> Deserialize<'a>>(path: &Path) -> Option<T> {
    serde_json::from_slice(&read_regular(path, MAX_STATE).ok()?).ok()
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
        let group = GroupNames::default().resolve(root, "h", std::iter::once(&*path)).remove(0);
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
                "user-1000/app-x",
                "app-x.service",
            ),
            (
                "/system.slice/postgresql@15-main.service/worker",
                "postgresql@15-main",
                "postgresql@15-main.service",
            ),
            // Found by a review: a container of nspawn or LXC could add its memory to a service of the machine.
            (
                "/machine.slice/systemd-nspawn@db.service/payload/system.slice/ssh.service",
                "systemd-nspawn@db",
                "systemd-nspawn@db.service",
            ),
            ("/lxc.payload.db/system.slice/ssh.service", "lxc.payload.db", ""),
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
        let list = r#"[{"id":"NUMBER","names":["db"],"image":"d7af3121","layer":"67b0c662",
            "metadata":"{\"image-name\":\"docker.io/library/postgres:17\",\"image-id\":\"d7af3121\",\"name\":\"db\",\"created-at\":1711141194}",
            "created":"2024-03-22T20:59:54.545266929Z","flags":{"MountLabel":"","ProcessLabel":""}},{"id":"other"}]"#;
        for name in ["containers.json", "volatile-containers.json"] {
            let path = format!("var/lib/containers/storage/overlay-containers/{name}");
            let root = root(&[(&path, list)]);
            for path in [
                "/machine.slice/libpod-NUMBER.scope",
                "/machine.slice/libpod-NUMBER.scope/container",
            ] {
                let group = of(root.path(), path);
                let names = (&*group.service, &*group.container, &*group.image);
                assert_eq!(names, ("db", "db", "docker.io/library/postgres:17"), "{path}");
            }
            let conmon = of(root.path(), "/machine.slice/libpod-conmon-NUMBER.scope");
            assert_eq!(conmon.container, "");
        }
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

    /// The `state.json` of runc, under containerd.
    const RUNC: &str = r#"{"id":"NUMBER","init_process_pid":232402,"created":"2023-11-23T08:32:23.988701148Z",
        "config":{"no_pivot_root":false,"umask":null,"mounts":[{"source":"proc","propagation_flags":null}],"cgroups":
        {"path":"/kubepods/pod005f082b/NUMBER","Systemd":false},"Hooks":{"poststop":null},"version":"1.0.2-dev","labels":[
        "io.kubernetes.cri.sandbox-uid=005f082b-5fd9-4650-8ef4-473e63bc2d13","io.kubernetes.cri.container-name=main",
        "io.kubernetes.cri.container-type=container","io.kubernetes.cri.image-name=docker.io/shop/main:v2",
        "io.kubernetes.cri.sandbox-id=446c65ab","io.kubernetes.cri.sandbox-name=shop-7d4b9c6f5d-x2v8k",
        "io.kubernetes.cri.sandbox-namespace=prod",
        "bundle=/run/containerd/io.containerd.runtime.v2.task/k8s.io/NUMBER"],"no_new_keyring":false},"rootless":false,
        "cgroup_paths":{"":"/sys/fs/cgroup/kubepods/pod005f082b/NUMBER"}}"#;
    /// The `config.json` of containerd, which crun copies.
    const CONTAINERD: &str = r#"{"ociVersion":"1.1.0","process":{"env":["SECRET=1"]},"annotations":{
        "io.kubernetes.cri.container-name":"main","io.kubernetes.cri.container-type":"container",
        "io.kubernetes.cri.image-name":"docker.io/shop/main:v2","io.kubernetes.cri.sandbox-id":"2f8ce2bd",
        "io.kubernetes.cri.sandbox-name":"shop-7d4b9c6f5d-x2v8k","io.kubernetes.cri.sandbox-namespace":"prod",
        "io.kubernetes.cri.sandbox-uid":"01b4b887-7635-4346-9c20-58a294bbb034"}}"#;
    /// The `config.json` of CRI-O.
    const CRI_O: &str = r#"{"ociVersion":"1.0.0","annotations":{"io.container.manager":"cri-o",
        "io.kubernetes.container.name":"main","io.kubernetes.cri-o.ContainerID":"NUMBER",
        "io.kubernetes.cri-o.ContainerType":"container","io.kubernetes.cri-o.Image":"98bd7cfc",
        "io.kubernetes.cri-o.ImageName":"docker.io/shop/main:v2","io.kubernetes.cri-o.SandboxID":"50002771",
        "io.kubernetes.pod.name":"shop-7d4b9c6f5d-x2v8k","io.kubernetes.pod.namespace":"prod",
        "io.kubernetes.pod.uid":"5b5e07db-f1b9-4530-81ef-b7d04d66b83e"}}"#;
    const LINK: &str = "var/log/containers/shop-7d4b9c6f5d-x2v8k_prod_main-NUMBER.log";

    #[test]
    fn a_runtime_knows_the_image_of_a_container_in_a_pod() {
        for (path, text) in [
            ("run/containerd/runc/k8s.io/NUMBER/state.json", RUNC),
            ("run/containerd/runc/k8s.io/NUMBER/config.json", CONTAINERD),
            ("run/containerd/io.containerd.runtime.v2.task/k8s.io/NUMBER/config.json", CONTAINERD),
            ("run/crun/NUMBER/config.json", CRI_O),
            ("run/runc/NUMBER/state.json", RUNC),
        ] {
            // With the name of the log, and without.
            for root in [root(&[(path, text), (LINK, "")]), root(&[(path, text)])] {
                let group = of(root.path(), "/kubepods/burstable/pod1b2c-3d/NUMBER");
                let names = [&group.service, &group.pod, &group.namespace, &group.container];
                assert_eq!(names, ["prod/shop", "shop-7d4b9c6f5d-x2v8k", "prod", "main"], "{path}");
                assert_eq!(group.image, "docker.io/shop/main:v2", "{path}");
            }
            // It counts for the service, but its image is not that of the service.
            let text = text.replace("=container\"", "=sandbox\"");
            let text = text.replace("\"container\"", "\"sandbox\"");
            let group = of(root(&[(path, &text)]).path(), "/kubepods/burstable/pod1b2c-3d/NUMBER");
            let names = [&group.service, &group.container, &group.image];
            assert_eq!(names, ["prod/shop", "", ""], "{path}");
        }
    }

    #[test]
    fn a_bad_state_file_gives_no_name() {
        let path = "run/containerd/runc/k8s.io/NUMBER/state.json";
        let deep = "[".repeat(1 << 20);
        let long = format!("{{\"annotations\":{{}},\"x\":\"{}\"}}", "x".repeat(5 << 20));
        let torn = &RUNC[..RUNC.len() / 2];
        for text in ["", "null", "[]", "{}", r#"{"config":{"labels":[7]}}"#, torn, &deep, &long] {
            let root = root(&[(path, text), (LINK, "")]);
            let group = of(root.path(), "/kubepods/podx/NUMBER");
            assert_eq!((&*group.service, &*group.image), ("prod/shop", ""));
        }
        // A pipe in place of the file does not stop the agent.
        let root = root(&[(LINK, "")]);
        let pipe = root.path().join(path.replace("NUMBER", N));
        fs::create_dir_all(pipe.parent().unwrap()).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(of(root.path(), "/kubepods/podx/NUMBER").image, "");
    }

    #[test]
    fn a_user_cannot_choose_the_name_of_another_service() {
        let other = "a".repeat(64);
        let root = root(&[(LINK, ""), ("run/containerd/runc/k8s.io/NUMBER/state.json", RUNC)]);
        let user = "/user.slice/user-1000.slice/user@1000.service";
        for (path, service) in [
            (format!("{user}/kubepods/podx/{N}"), "user-1000/user@1000".to_owned()),
            (
                format!("{user}/app.slice/cri-containerd-{N}.scope"),
                format!("user-1000/cri-containerd-{N}"),
            ),
            (format!("{user}/app.slice/ssh.service"), "user-1000/ssh".to_owned()),
            // A container below another one is that one.
            (format!("/docker/{other}/kubepods/podx/{N}"), N.to_owned()),
            (format!("/kubepods/podx/{N}/docker/{other}"), "prod/shop".to_owned()),
        ] {
            let group = of(root.path(), &path);
            assert_eq!(group.service, service, "{path}");
            assert_eq!(group.image.is_empty(), service != "prod/shop", "{path}");
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
            // Found by a review: random parts that are numbers.
            ("shop-7d4b9c6f5d-24578", "shop"),
            ("backup-29930880-24578", "backup"),
            ("node-exporter-24578", "node-exporter"),
        ] {
            assert_eq!(owner(pod), expected);
        }
    }

    /// Found by an audit: the service of a container that ended within a minute was its number.
    #[test]
    fn names_of_a_container_outlast_its_state() {
        let config = "var/lib/docker/containers/NUMBER/config.v2.json";
        let root = root(&[(config, r#"{"Name": "/job", "Config": {"Image": "job:1"}}"#)]);
        let (path, mut names) = (format!("/docker/{N}"), GroupNames::default());
        names.meet(root.path(), "h", std::iter::once(&*path));
        fs::remove_file(root.path().join(config.replace("NUMBER", N))).unwrap();
        for _ in 0..=2 * AGAIN {
            let group = names.resolve(root.path(), "h", std::iter::once(&*path)).remove(0);
            assert_eq!((&*group.service, &*group.image), ("job", "job:1"));
        }
    }

    #[test]
    fn names_that_come_later_are_found() {
        let dir = root(&[]);
        let (path, mut names) = (format!("/kubepods/podx/{N}"), GroupNames::default());
        let mut service =
            || names.resolve(dir.path(), "h", std::iter::once(&*path)).remove(0).service;
        assert_eq!(service(), N);
        fs::create_dir_all(dir.path().join("var/log/containers")).unwrap();
        fs::write(dir.path().join(format!("var/log/containers/a-0_ns_c-{N}.log")), "").unwrap();
        assert!((0..AGAIN).any(|_| service() == "ns/a"));
    }
}
