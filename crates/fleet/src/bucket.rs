//! A lake in object storage.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path as Key;
use object_store::{Error, ObjectStore, ObjectStoreExt, RetryConfig};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::compact::LakeFiles;
use crate::decode::{MAX_BYTES, decode_object};
use crate::lake::LakeError;
use crate::row::Rows;

/// Time that one object may take.
const MAX_TIME: Duration = Duration::from_secs(20);

/// Failures of object storage.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BucketError {
    /// the place or the credentials are invalid
    #[error("cannot use {url}: {source}; see AWS_REGION, AWS_ENDPOINT and AWS_ALLOW_HTTP")]
    Place {
        /// as the user gave it
        url: String,
        /// the reason
        source: Error,
    },
    /// the storage refuses
    #[error(
        "cannot {what} {key}: {source}; check the network, and the credentials and the place in AWS_*"
    )]
    Refused {
        /// the failed operation
        what: &'static str,
        /// name of the object
        key: String,
        /// the reason
        source: Error,
    },
    /// the storage does not answer
    #[error("cannot {what} {key}: no answer within {} s", MAX_TIME.as_secs())]
    Slow {
        /// the failed operation
        what: &'static str,
        /// name of the object
        key: String,
    },
    /// an object is no file of a lake
    #[error("cannot get {key}: it has more than {} MiB", MAX_BYTES >> 20)]
    TooLarge {
        /// its name
        key: String,
    },
    /// the runtime of the client cannot be started
    #[error("cannot start the client of the object storage: {0}")]
    Runtime(#[source] io::Error),
}

impl BucketError {
    /// Whether the credentials do not permit it.
    pub(crate) fn is_forbidden(&self) -> bool {
        let BucketError::Refused { source, .. } = self else { return false };
        matches!(source, Error::PermissionDenied { .. } | Error::Unauthenticated { .. })
    }
}

/// A place in object storage.
#[derive(Debug)]
pub struct Bucket {
    store: Arc<dyn ObjectStore>,
    prefix: String,
    runtime: Runtime,
}

impl Bucket {
    /// The place `s3://BUCKET/PREFIX`, with credentials from the environment.
    ///
    /// # Errors
    /// If the place or the credentials are invalid. Whether the bucket can be reached shows later.
    pub fn s3(url: &str) -> Result<Self, BucketError> {
        // Two libraries may have different defaults; this is the one that is linked.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let retry =
            RetryConfig { max_retries: 2, retry_timeout: MAX_TIME / 2, ..RetryConfig::default() };
        let store = AmazonS3Builder::from_env().with_url(url).with_retry(retry).build();
        let store = store.map_err(|source| BucketError::Place { url: url.to_owned(), source })?;
        let prefix = url.split_once("://").and_then(|(_, place)| place.split_once('/'));
        Bucket::new(Arc::new(store), prefix.map_or("", |(_, prefix)| prefix))
    }

    /// The objects of any storage whose names begin with `prefix/`.
    ///
    /// # Errors
    /// If the client cannot be started.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &str) -> Result<Self, BucketError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Bucket {
            store,
            prefix: prefix.trim_matches('/').to_owned(),
            runtime: runtime.map_err(BucketError::Runtime)?,
        })
    }

    fn key(&self, name: &str) -> Key {
        Key::from(format!("{}/{name}", self.prefix))
    }

    /// Puts an object, which replaces an earlier one as a whole.
    pub(crate) fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), BucketError> {
        let key = self.key(name);
        let put = limited("put", &key, self.store.put(&key, bytes.into()));
        self.runtime.block_on(put).map(drop)
    }

    /// Gets an object; `None` if there is none.
    pub(crate) fn get(&self, name: &str) -> Result<Option<Bytes>, BucketError> {
        self.runtime.block_on(get(Arc::clone(&self.store), self.key(name)))
    }
}

async fn get(store: Arc<dyn ObjectStore>, key: Key) -> Result<Option<Bytes>, BucketError> {
    let whole = async {
        let found = store.get(&key).await?;
        Ok(if found.meta.size > MAX_BYTES { None } else { Some(found.bytes().await?) })
    };
    match limited("get", &key, whole).await {
        Ok(Some(bytes)) => Ok(Some(bytes)),
        Ok(None) => Err(BucketError::TooLarge { key: key.to_string() }),
        Err(BucketError::Refused { source: Error::NotFound { .. }, .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

async fn limited<T>(
    what: &'static str,
    key: &Key,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, BucketError> {
    match timeout(MAX_TIME, work).await {
        Ok(done) => {
            done.map_err(|source| BucketError::Refused { what, key: key.to_string(), source })
        }
        Err(_) => Err(BucketError::Slow { what, key: key.to_string() }),
    }
}

impl LakeFiles for Bucket {
    fn parts(&self, dir: &str, prefix: &str) -> Result<Vec<String>, LakeError> {
        let key = self.key(dir);
        // Many hosts are many pages of a list.
        let list = self.runtime.block_on(self.store.list_with_delimiter(Some(&key)));
        let list = list.map_err(|source| BucketError::Refused {
            what: "list",
            key: key.to_string(),
            source,
        })?;
        let names = list.common_prefixes.iter().filter_map(Key::filename);
        Ok(names.filter_map(|name| Some(name.strip_prefix(prefix)?.to_owned())).collect())
    }

    /// Reads all at once, because each takes a while.
    fn read(&self, names: &[String]) -> Result<Vec<Result<Rows, String>>, LakeError> {
        let mut all: Vec<_> = names.iter().map(|_| Err("it was not read".to_owned())).collect();
        self.runtime.block_on(async {
            let mut gets = JoinSet::new();
            for (i, name) in names.iter().enumerate() {
                let get = get(Arc::clone(&self.store), self.key(name));
                gets.spawn(async move { (i, get.await) });
            }
            while let Some(done) = gets.join_next().await {
                let Ok((i, bytes)) = done else { continue };
                let bytes = match bytes {
                    Err(e @ BucketError::TooLarge { .. }) => {
                        all[i] = Err(e.to_string());
                        continue;
                    }
                    bytes => bytes?,
                };
                all[i] = match bytes {
                    Some(bytes) => decode_object(bytes).map_err(|e| e.to_string()),
                    None => Err("there is no such object".to_owned()),
                };
            }
            Ok(all)
        })
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;
    use crate::{Effort, Group, HOUR_MS, LakeRow, Writer, compact, read};

    const DAY: i64 = 1_795_564_800_000;

    #[test]
    fn a_day_is_copied_from_a_bucket() {
        for prefix in ["", "/fleet/"] {
            let bucket = Bucket::new(Arc::new(InMemory::new()), prefix).unwrap();
            let name = |hour: i64, host: &str| {
                format!("date=2026-11-25/hour={hour:02}/host={host}/rows.parquet")
            };
            for (hour, host) in [(1, "b"), (0, "b"), (0, "a")] {
                let mut writer = Writer::new(Vec::new(), Effort::Fast).unwrap();
                let row = LakeRow { minute: DAY + hour * HOUR_MS, ..LakeRow::default() };
                writer.write(&[Group { host: host.into(), ..Group::default() }], &[row]).unwrap();
                bucket.put(&name(hour, host), writer.finish().unwrap()).unwrap();
            }
            bucket.put(&name(2, "b"), b"no".to_vec()).unwrap();
            bucket.put(&name(3, "b"), vec![0; MAX_BYTES as usize + 1]).unwrap();
            let (dir, mut days) = (tempfile::tempdir().unwrap(), Vec::new());
            let now = DAY + 25 * HOUR_MS;
            compact(&bucket, dir.path(), None, now, |day| days.push(day.clone())).unwrap();
            let [day] = &days[..] else { panic!("{days:?}") };
            let left_out: Vec<&str> = day.left_out.iter().map(|(name, _)| &**name).collect();
            assert_eq!((day.hosts, day.rows), (2, 3));
            assert_eq!(left_out, [name(2, "b"), name(3, "b")]);
            let copy = read(&dir.path().join("date=2026-11-25/part-0001.parquet")).unwrap();
            let keys =
                copy.rows.iter().map(|row| (&*copy.groups[row.group as usize].host, row.minute));
            let expected = [("a", DAY), ("b", DAY), ("b", DAY + HOUR_MS)];
            assert_eq!(keys.collect::<Vec<_>>(), expected);
        }
    }
}
