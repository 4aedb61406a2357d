//! The state of the routes: the services of the application, and the sources of health, metrics and
//! the set-up.

use std::sync::Arc;

use riglm_app::control::client_data::ClientDataService;
use riglm_app::control::events::EventFeed;
use riglm_app::control::feedback::FeedbackService;
use riglm_app::control::learning_report::LearningReports;
use riglm_app::control::overrides::Overrides;
use riglm_app::control::overview::OverviewService;
use riglm_app::control::queries::Queries;
use riglm_app::control::settings::SharedSettings;
use riglm_app::proxy::Proxy;
use riglm_discovery::experiments::ExperimentService;
use tokio_util::sync::CancellationToken;

use crate::access::ControlKeys;
use crate::handlers::health::HealthSource;
use crate::handlers::metrics::MetricsSource;
use crate::handlers::setup::SetupSource;

/// The services and data behind the routes.
#[derive(Clone, Debug)]
pub struct ControlParts {
    /// The source of `GET /health`.
    pub health: HealthSource,
    /// The source of `GET /metrics`.
    pub metrics: MetricsSource,
    /// The source of `GET /events`.
    pub events: Arc<EventFeed>,
    /// The accepted keys.
    pub keys: ControlKeys,
    /// The proxy with its open sessions.
    pub proxy: Arc<Proxy>,
    /// The source of `GET /overview`.
    pub overview: Arc<OverviewService>,
    /// The reports of `GET /learning`; `None` if nothing is stored.
    pub learning: Option<Arc<LearningReports>>,
    /// The source of `GET /setup`; `None` if the process has no configuration to check.
    pub setup: Option<SetupSource>,
    /// The queries over recorded data; `None` if nothing is stored.
    pub queries: Option<Arc<Queries>>,
    /// The overrides of operators; `None` if nothing is stored.
    pub overrides: Option<Arc<Overrides>>,
    /// The A/B experiments; `None` if nothing is stored.
    pub experiments: Option<Arc<ExperimentService>>,
    /// The feedback about tools; `None` if nothing is stored.
    pub feedback: Option<Arc<FeedbackService>>,
    /// The export and deletion of the data of clients; `None` if nothing is stored.
    pub client_data: Option<Arc<ClientDataService>>,
    /// Cancelled at shutdown, so that streams end.
    pub stop: CancellationToken,
    /// The tunable settings; `None` if none can change.
    pub settings: Option<SharedSettings>,
}
