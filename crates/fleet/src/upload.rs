//! Puts the hours of a lake into object storage.
//!
//! The directory of the lake is the buffer. An object is put whole, which is atomic: a reader never sees part of one.
//! An hour that is finished is removed from the directory once it has been put.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt, RetryConfig};
use tokio::runtime::{Builder, Runtime};

use crate::file::read;
use crate::lake::{Lake, LakeError};

/// Time that one object may take.
const MOST_TIME: Duration = Duration::from_secs(20);
/// Number of finished hours that are put in one turn, so that rows do not wait for long.
const HOURS_AT_ONCE: usize = 6;

/// Failures of uploading.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UploadError {
    /// the place or the credentials are invalid
    #[error("cannot use {url}: {source}; see AWS_REGION, AWS_ENDPOINT and AWS_ALLOW_HTTP")]
    Place {
        /// as the user gave it
        url: String,
        /// the reason
        source: object_store::Error,
    },
    /// an object cannot be put
    #[error("cannot put {key}: {source}")]
    Put {
        /// its name
        key: String,
        /// the reason
        source: object_store::Error,
    },
    /// the storage does not answer
    #[error("cannot put {key}: no answer within {} s", MOST_TIME.as_secs())]
    Slow {
        /// its name
        key: String,
    },
    /// a file of the directory cannot be read
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// the file
        path: PathBuf,
        /// the error of the operating system
        source: io::Error,
    },
    /// the directory cannot be used
    #[error("{0}")]
    Lake(#[from] LakeError),
    /// the runtime of the client cannot be started
    #[error("cannot start the client of the object storage: {0}")]
    Runtime(#[source] io::Error),
}

/// Uploads the hours of a lake.
#[derive(Debug)]
pub struct Uploader {
    store: Arc<dyn ObjectStore>,
    prefix: String,
    runtime: Runtime,
    /// maximum size of the finished hours that wait, in bytes
    most_bytes: u64,
    every: Duration,
    /// when the next upload is due, in ms since 1970
    due: i64,
    /// minutes of each hour that have been put
    put: BTreeMap<i64, usize>,
}

impl Uploader {
    /// Uploads to `s3://BUCKET/PREFIX`, with credentials from the environment, every `every`. While hours wait that
    /// are together larger than `most_bytes`, the oldest are dropped.
    ///
    /// # Errors
    /// If the place or the credentials are invalid. Whether the bucket can be reached shows later.
    pub fn s3(url: &str, every: Duration, most_bytes: u64) -> Result<Self, UploadError> {
        // Two libraries may have different defaults; this is the one that is linked.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // A later turn tries again.
        let retry =
            RetryConfig { max_retries: 2, retry_timeout: MOST_TIME / 2, ..RetryConfig::default() };
        let store = AmazonS3Builder::from_env().with_url(url).with_retry(retry).build();
        let store = store.map_err(|source| UploadError::Place { url: url.to_owned(), source })?;
        let prefix = url.split_once("://").and_then(|(_, place)| place.split_once('/'));
        Uploader::to(Arc::new(store), prefix.map_or("", |(_, prefix)| prefix), every, most_bytes)
    }

    /// Uploads to any storage.
    ///
    /// # Errors
    /// If its client cannot be started.
    pub fn to(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        every: Duration,
        most_bytes: u64,
    ) -> Result<Self, UploadError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Uploader {
            store,
            prefix: prefix.trim_matches('/').to_owned(),
            runtime: runtime.map_err(UploadError::Runtime)?,
            most_bytes,
            every,
            due: i64::MIN,
            put: BTreeMap::new(),
        })
    }

    /// Puts hours that are finished, and the running one, if that is due at `now`, in ms since 1970. Drops the
    /// oldest hours if too much waits.
    ///
    /// # Errors
    /// If the storage cannot be reached. The hours stay, and are put in a later turn.
    pub fn turn(&mut self, lake: &mut Lake, now: i64) -> Result<(), UploadError> {
        if now < self.due {
            return Ok(());
        }
        self.due = now.saturating_add(i64::try_from(self.every.as_millis()).unwrap_or(i64::MAX));
        let put = self.put_all(lake);
        self.drop_oldest(lake)?;
        if put? {
            // Finished hours remain: upload them in the next turn, without a pause.
            self.due = now;
        }
        Ok(())
    }

    /// Puts everything, at the end.
    ///
    /// # Errors
    /// If the storage cannot be reached. The hours stay in the directory.
    pub fn finish(&mut self, lake: &mut Lake) -> Result<(), UploadError> {
        self.put_all(lake).map(drop)
    }

    /// Puts the finished hours and the running one; returns whether finished hours remain.
    fn put_all(&mut self, lake: &mut Lake) -> Result<bool, UploadError> {
        let finished = lake.finished()?;
        for hour in finished.iter().take(HOURS_AT_ONCE) {
            self.put(lake, &hour.path)?;
            self.put.remove(&hour.start);
            lake.remove(hour, 0)?;
        }
        if let Some((start, path, minutes)) = lake.running()
            && self.put.get(&start) != Some(&minutes)
        {
            self.put(lake, &path)?;
            self.put.insert(start, minutes);
        }
        Ok(finished.len() > HOURS_AT_ONCE)
    }

    fn put(&self, lake: &Lake, path: &Path) -> Result<(), UploadError> {
        let bytes =
            fs::read(path).map_err(|source| UploadError::Read { path: path.to_owned(), source })?;
        let key = format!("{}/{}", self.prefix, lake.name(path));
        let put = async {
            let place = Key::from(key.as_str());
            tokio::time::timeout(MOST_TIME, self.store.put(&place, bytes.into())).await
        };
        match self.runtime.block_on(put) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(source)) => Err(UploadError::Put { key, source }),
            Err(_) => Err(UploadError::Slow { key }),
        }
    }

    /// Drops the oldest finished hours while all of them are larger than the limit.
    fn drop_oldest(&mut self, lake: &mut Lake) -> Result<(), UploadError> {
        let finished = lake.finished()?;
        let mut bytes: u64 = finished.iter().map(|hour| hour.bytes).sum();
        for hour in &finished {
            if bytes <= self.most_bytes {
                break;
            }
            bytes = bytes.saturating_sub(hour.bytes);
            let put = self.put.remove(&hour.start).unwrap_or(0);
            // A file that cannot be read has no minutes to count as lost.
            let lost = read(&hour.path).map_or(0, |rows| rows.lost_after(put));
            lake.remove(hour, lost)?;
        }
        Ok(())
    }
}
