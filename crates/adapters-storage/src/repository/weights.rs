//! Weights of rankings.

use std::collections::BTreeMap;

use async_trait::async_trait;
use riglm_domain::privacy::audit::AuditEntry;
use riglm_domain::recommendation::weights::WeightVersion;
use riglm_ports::analytics::{StoreError, Topic, WeightRepository};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::version::check_follows;
use super::{audit, changes};
use crate::database::{Statement, Transaction, WriteLock};
use crate::error::operation_error;
use crate::store::Store;
use crate::value::{Micros, saturating_count};

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

// Uses an existing version; changes no row if it does not exist.
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

/// The reason why weights are refused: JSON has no numbers for infinity and NaN.
#[derive(Debug, thiserror::Error)]
#[error("the weight of {factor} is not a finite number")]
struct NonFiniteWeight {
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
            return Err(operation_error("write weights")(NonFiniteWeight { factor }));
        }
        let ranking = &weights.ranking;
        let mut transaction = self.database().await?.begin(WriteLock::Decisions).await?;
        let newest: Option<(Option<u64>,)> = transaction.row(&NEWEST, &[ranking]).await?;
        let newest = newest.and_then(|(version,)| version).unwrap_or(0);
        check_follows(|| format!("ranking {ranking}"), weights.version, newest)?;
        let row = (
            ranking,
            saturating_count(weights.version),
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
        let used: Option<WeightVersionRow> = database.row(&SELECT_USED, &[ranking]).await?;
        Ok(used.map(Into::into))
    }

    async fn weight_versions(
        &self,
        ranking: &str,
        limit: u32,
    ) -> Result<Vec<WeightVersion>, StoreError> {
        let database = self.database().await?;
        let newest: Vec<WeightVersionRow> =
            database.rows(&SELECT_NEWEST, &(ranking, limit)).await?;
        Ok(newest.into_iter().rev().map(Into::into).collect())
    }
}

/// Uses a version from now on; returns false, with nothing written, if it does not exist.
async fn switch_to(
    transaction: &mut Transaction,
    ranking: &str,
    version: u64,
    audit: &AuditEntry,
) -> Result<bool, StoreError> {
    let used = (ranking, saturating_count(version));
    if transaction.execute(&USE, &used).await? == 0 {
        return Ok(false);
    }
    audit::write(transaction, audit).await?;
    changes::increase_revision(transaction, Topic::Weights).await?;
    Ok(true)
}

#[derive(Deserialize)]
struct WeightVersionRow(String, u64, BTreeMap<String, ExactWeight>, String, Micros);

/// A number with its exact value: `serde_json` may round the last digit.
struct ExactWeight(f64);

impl<'de> Deserialize<'de> for ExactWeight {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = <&RawValue>::deserialize(deserializer)?;
        number.get().parse().map(Self).map_err(D::Error::custom)
    }
}

impl From<WeightVersionRow> for WeightVersion {
    fn from(row: WeightVersionRow) -> Self {
        let WeightVersionRow(ranking, version, weights, reason, created_at) = row;
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
