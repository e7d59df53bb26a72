package agent

import (
	"cmp"
	"log/slog"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent/internal/about"
	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/policy"
	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/runtime/required"
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// Defaults of [Config].
const (
	DefaultWorkers          = 16
	DefaultSyncInterval     = 10 * time.Second
	DefaultEvictionGrace    = time.Hour
	DefaultMaxFeedbackWatch = 50
	DefaultMaxJSONRawLength = 1024
	DefaultDigestInterval   = time.Minute
	DefaultRecordDelay      = time.Minute
)

// Config configures [New].
type Config struct {
	// Cluster that the agent serves. Required.
	Cluster wire.ClusterName
	// ClientID of the agent at the broker, the source of its events. Required.
	ClientID string
	// AgentID is written to the AppliedManifestWorks that belong to the agent. Default: the hub
	// hash.
	AgentID string
	// TakesOver is a name under which an agent with this AgentID served the cluster before: what it has applied is this
	// agent's. Without it, an agent that finds such a name refuses to run. Default: none.
	TakesOver wire.ClusterName
	// BrokerHost is hashed into the names of AppliedManifestWorks: that of the transport
	// configuration, or its HubName. Required.
	BrokerHost string
	// Topics to subscribe and publish to. Required.
	Topics wire.Topics
	// Transport to the broker. Run runs it. Required.
	Transport transport.Transport
	// Kube is the client configuration for the cluster. Required.
	Kube *rest.Config
	// TrustedKeys are the keys that sources sign their events with. The agent then neither applies nor
	// deletes anything that is not signed (docs/protocol.md, Signatures). Default: all are believed.
	TrustedKeys *signing.TrustedKeys
	// SignatureMaxAge is how old a signature may be, and how far ahead of the agent's clock. Negative:
	// no limit; default 1 h.
	SignatureMaxAge time.Duration
	// Sign signs each status and question, so that sources with the option --trusted-agents believe it; the method
	// SignStatus of a signing.Signer does (docs/protocol.md, Signatures). Default: none is signed.
	Sign func(*cloudevents.Event) error
	// Unseal opens specs that are sealed to the cluster (docs/protocol.md, Sealed data). Default: such
	// specs are refused.
	Unseal *sealing.Unsealer
	// Policy is what the owner of the cluster allows works to do (docs/owner-policy.md). Default: what the
	// agent's rights allow.
	Policy *policy.File
	// StateDir keeps works and unsent statuses over a restart. Empty keeps them in memory; sources
	// are then asked again after a restart.
	StateDir string
	// StateCommit carries out each commit to the state directory, which write does. Simulations of disks delay, refuse and cut
	// it. Default: it calls write.
	StateCommit func(write func() error) error
	// Term is the term of leadership that begins; nil without leader election. State that another
	// replica has led since is discarded.
	Term *Term
	// Workers is the number of works reconciled at a time. Default 16.
	Workers int
	// SyncInterval is the time between reads of objects that are not watched, and the first pause before a source that
	// has not answered a question is asked again. Default 10 s.
	SyncInterval time.Duration
	// DigestInterval is the time between the digests that each source compares with its works.
	// Negative: never; default 1 m.
	DigestInterval time.Duration
	// AboutInterval is the time between two readings of what the cluster says of itself: version, capacity, claims.
	// Sources are told when it has changed. Negative: they are not; default 5 min.
	AboutInterval time.Duration
	// RecordDelay is how long it may take, while other works wait, until the AppliedManifestWorks of new ones list
	// what was applied. Negative: none waits; default 1 m.
	RecordDelay time.Duration
	// MaxUplink is how many bytes of statuses to send in a minute, on average: beyond it, changes of
	// feedback values alone wait. 0: no limit.
	MaxUplink int
	// MaxSourceSpecs is how many bytes of specs to hold of one source; a spec beyond that is refused. 0: no limit.
	MaxSourceSpecs int64
	// MaxFeedbackWatch is the maximum number of objects with a watch of their own: ReadOnly objects
	// with feedbackScrapeType Watch. Others are polled. Negative: none; default 50.
	MaxFeedbackWatch int
	// WithoutReadiness ignores [workv1.ReportReadinessAnnotationKey]: it is not reported whether objects are ready.
	WithoutReadiness bool
	// RawFeedback reports feedback values of any JSON type (feature gate RawFeedbackJsonString).
	RawFeedback bool
	// MaxJSONRawLength is the maximum size of such a value in bytes. Default 1024.
	MaxJSONRawLength int
	// ExecutorCaches evaluates the permissions of executors in memory (feature gate
	// ExecutorValidatingCaches), for clusters that authorize by RBAC only.
	ExecutorCaches bool
	// EvictionGrace is how long an AppliedManifestWork of the agent outlives its work. A hundred
	// years or more: forever. Default 1 h.
	EvictionGrace time.Duration
	// Now is the clock of the statuses' sequence ids; default time.Now.
	Now func() time.Time
	// Audit gets a record for each spec received, and each object applied or removed. Default: none.
	Audit *audit.Log
	// TracerProvider makes the spans of changes whose events continue a trace (docs/tracing.md).
	// Default: none.
	TracerProvider trace.TracerProvider
	// Registerer for metrics. Default: none.
	Registerer prometheus.Registerer
	// Logger, default slog.Default().
	Logger *slog.Logger
}

// complete sets defaults and returns an error for the fields that are missing. Numbers cannot be wrong: what is
// not positive is the default.
func (c *Config) complete() error {
	c.AgentID = cmp.Or(c.AgentID, applied.HubHash(c.BrokerHost, ""))
	c.Workers = cmp.Or(max(c.Workers, 0), DefaultWorkers)
	c.SyncInterval = cmp.Or(max(c.SyncInterval, 0), DefaultSyncInterval)
	c.EvictionGrace = cmp.Or(max(c.EvictionGrace, 0), DefaultEvictionGrace)
	c.SignatureMaxAge = max(cmp.Or(c.SignatureMaxAge, signing.DefaultMaxAge), 0)
	c.DigestInterval = max(cmp.Or(c.DigestInterval, DefaultDigestInterval), 0)
	c.AboutInterval = max(cmp.Or(c.AboutInterval, about.DefaultInterval), 0)
	c.RecordDelay = max(cmp.Or(c.RecordDelay, DefaultRecordDelay), 0)
	c.MaxFeedbackWatch = max(cmp.Or(c.MaxFeedbackWatch, DefaultMaxFeedbackWatch), 0)
	c.MaxJSONRawLength = cmp.Or(max(c.MaxJSONRawLength, 0), DefaultMaxJSONRawLength)
	// The lines about a source are paid by it.
	c.Logger = slog.New(quota.LimitLog(cmp.Or(c.Logger, slog.Default()).Handler(), "source"))
	return required.Fields(c, "Cluster", "ClientID", "BrokerHost", "Transport", "Kube")
}
