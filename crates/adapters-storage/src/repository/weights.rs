//! Weights of rankings.

use std::collections::BTreeMap;

use async_trait::async_trait;
use riglm_domain::audit::AuditEntry;
use riglm_domain::weights::WeightVersion;
use riglm_ports::analytics::{StoreError, Topic, WeightRepository};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::version::check_follows;
use super::{audit, changes};
use crate::database::{Statement, Transaction, WriteLock};
use crate::error::failing;
use crate::store::Store;
use crate::value::{Micros, saturated};

const NEWEST: Statement = Statement {
    table: "weight_versions",
    sqlite: "
        SELECT json_array(max(version))
        FROM weight_versions
        WHERE ranking = ?1 ->> 0",
    postgres: "
        SELECT json_build_array(max(version))::text
        FROM weight_versions
        WHERE ranking = $1::jsonb ->> 0",
};

const INSERT: Statement = Statement {
    table: "weight_versions",
    sqlite: "
        INSERT INTO weight_versions (ranking, version, weights, reason, created_at)
        VALUES (?1 ->> 0, ?1 ->> 1, ?1 -> 2, ?1 ->> 3, ?1 ->> 4)",
    postgres: "
        INSERT INTO weight_versions (ranking, version, weights, reason, created_at)
        SELECT
            given ->> 0, (given ->> 1)::bigint, given ->> 2, given ->> 3, (given ->> 4)::bigint
        FROM (SELECT $1::jsonb AS given) AS parameter",
};

/// Uses a version that is there; changes no row where it is not.
const USE: Statement = Statement {
    table: "used_weights",
    sqlite: "
        INSERT INTO used_weights (ranking, version)
        SELECT ranking, version
        FROM weight_versions
        WHERE ranking = ?1 ->> 0 AND version = ?1 ->> 1
        ON CONFLICT (ranking) DO UPDATE SET version = excluded.version",
    postgres: "
        INSERT INTO used_weights (ranking, version)
        SELECT ranking, version
        FROM weight_versions
        WHERE ranking = $1::jsonb ->> 0 AND version = ($1::jsonb ->> 1)::bigint
        ON CONFLICT (ranking) DO UPDATE SET version = excluded.version",
};

const SELECT_USED: Statement = Statement {
    table: "weight_versions",
    sqlite: "
        SELECT json_array(ranking, version, json(weights), reason, created_at)
        FROM weight_versions JOIN used_weights USING (ranking, version)
        WHERE ranking = ?1 ->> 0",
    postgres: "
        SELECT json_build_array(ranking, version, weights::json, reason, created_at)::text
        FROM weight_versions JOIN used_weights USING (ranking, version)
        WHERE ranking = $1::jsonb ->> 0",
};

const SELECT_NEWEST: Statement = Statement {
    table: "weight_versions",
    sqlite: "
        SELECT json_array(ranking, version, json(weights), reason, created_at)
        FROM weight_versions
        WHERE ranking = ?1 ->> 0
        ORDER BY version DESC
        LIMIT ?1 ->> 1",
    postgres: "
        SELECT json_build_array(ranking, version, weights::json, reason, created_at)::text
        FROM weight_versions
        WHERE ranking = $1::jsonb ->> 0
        ORDER BY version DESC
        LIMIT ($1::jsonb ->> 1)::bigint",
};

/// Why weights are refused: JSON has no such numbers.
#[derive(Debug, thiserror::Error)]
#[error("the weight of {factor} is not a finite number")]
struct NotFinite {
    factor: String,
}

#[async_trait]
impl WeightRepository for Store {
    async fn add_weights(
        &self,
        weights: &WeightVersion,
        audit: &AuditEntry,
    ) -> Result<(), StoreError> {
        if let Some((factor, _)) = weights.weights.iter().find(|(_, value)| !value.is_finite()) {
            let factor = factor.clone();
            return Err(failing("write weights")(NotFinite { factor }));
        }
        let ranking = &weights.ranking;
        let mut transaction = self.database().await?.begin(WriteLock::Decisions).await?;
        let newest: Option<(Option<u64>,)> = transaction.row(&NEWEST, &[ranking]).await?;
        let newest = newest.and_then(|(version,)| version).unwrap_or(0);
        check_follows(|| format!("ranking {ranking}"), weights.version, newest)?;
        let row = (
            ranking,
            saturated(weights.version),
            &weights.weights,
            &weights.reason,
            Micros(weights.created_at),
        );
        transaction.execute(&INSERT, &row).await?;
        switch_to(&mut transaction, ranking, weights.version, audit).await?;
        transaction.commit().await
    }

    async fn use_weights(
        &self,
        ranking: &str,
        version: u64,
        audit: &AuditEntry,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.database().await?.begin(WriteLock::Decisions).await?;
        let is_there = switch_to(&mut transaction, ranking, version, audit).await?;
        if is_there {
            transaction.commit().await?;
        }
        Ok(is_there)
    }

    async fn used_weights(&self, ranking: &str) -> Result<Option<WeightVersion>, StoreError> {
        let database = self.database().await?;
        let used: Option<Row> = database.row(&SELECT_USED, &[ranking]).await?;
        Ok(used.map(Into::into))
    }

    async fn weight_versions(
        &self,
        ranking: &str,
        limit: u32,
    ) -> Result<Vec<WeightVersion>, StoreError> {
        let database = self.database().await?;
        let newest: Vec<Row> = database.rows(&SELECT_NEWEST, &(ranking, limit)).await?;
        Ok(newest.into_iter().rev().map(Into::into).collect())
    }
}

/// Uses a version from now on; returns whether it is there. Without it nothing is written.
async fn switch_to(
    transaction: &mut Transaction,
    ranking: &str,
    version: u64,
    audit: &AuditEntry,
) -> Result<bool, StoreError> {
    let used = (ranking, saturated(version));
    if transaction.execute(&USE, &used).await? == 0 {
        return Ok(false);
    }
    audit::write(transaction, audit).await?;
    changes::touch(transaction, Topic::Weights).await?;
    Ok(true)
}

#[derive(Deserialize)]
struct Row(String, u64, BTreeMap<String, Weight>, String, Micros);

/// A number as exact as it was written: `serde_json` may miss the last digit.
struct Weight(f64);

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = <&RawValue>::deserialize(deserializer)?;
        number.get().parse().map(Self).map_err(D::Error::custom)
    }
}

impl From<Row> for WeightVersion {
    fn from(row: Row) -> Self {
        let Row(ranking, version, weights, reason, created_at) = row;
        Self {
            ranking,
            version,
            weights: (weights.into_iter())
                .map(|(factor, weight)| (factor, weight.0))
                .collect(),
            reason,
            created_at: created_at.0,
        }
    }
}
