package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/pkg/runtime/required"
	"github.com/workwire/workwire/pkg/runtime/serve"
)

// Config configures a [Dashboard].
type Config struct {
	// Options configure the listener.
	Options Options
	// REST is how to ask the API server who presents a token and what they may see; required.
	REST *rest.Config
	// Works are shown; required.
	Works *works.Cache
	// Clusters and ReplicaSets are shown too; default none, as where the hub does not watch them.
	Clusters    *controller.Cache[*clusterv1.ManagedCluster]
	ReplicaSets *controller.Cache[*workv1alpha1.ManifestWorkReplicaSet]
	// Leading and Connected report whether this replica leads, and whether it has a connection to the
	// broker; required.
	Leading, Connected func() bool
	// Current returns why what is shown may be out of date; nil if it is not; required.
	Current func(context.Context) error
	// Now returns the time; default time.Now.
	Now func() time.Time
	// Registerer gets the metrics workwire_hub_dashboard_*; default none.
	Registerer prometheus.Registerer
	// Logger gets a line when the dashboard is served, and one for each page that fails. It gets no
	// tokens. Default slog.Default().
	Logger *slog.Logger
}

// Dashboard serves the pages. Its methods are safe for concurrent use.
type Dashboard struct {
	cfg       Config
	fleet     *fleet
	feed      feed
	auth      *authenticator
	sessions  *sessions
	pages     *pages
	gzip      func(http.Handler) http.HandlerFunc
	metrics   *metrics
	streams   *streams
	listening chan struct{}
	following atomic.Bool // the handlers have seen what there was at the start
	address   string      // set before listening closes
}

// New returns a dashboard that is not served yet. It reports every fault of cfg at once and does no
// I/O.
func New(cfg Config) (*Dashboard, error) {
	errs := append([]error{required.Fields(&cfg, "REST", "Works", "Leading", "Connected", "Current")}, cfg.Options.Validate()...)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	// Reviews are bounded by the authenticator, and do not wait for the hub's own requests.
	config := rest.CopyConfig(cfg.REST)
	config.QPS, config.RateLimiter = -1, nil
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("dashboard: client of the Kubernetes API: %w", err)
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	d := &Dashboard{
		cfg: cfg, metrics: m, listening: make(chan struct{}), streams: newStreams(m),
		fleet:    &fleet{works: cfg.Works.All, now: cfg.Now},
		auth:     newAuthenticator(client.AuthenticationV1().TokenReviews(), client.AuthorizationV1().SubjectAccessReviews(), cfg.Now, m),
		sessions: newSessions(cfg.Now),
	}
	if cfg.Clusters != nil {
		d.fleet.clusters = cfg.Clusters.All
	}
	if d.pages, err = newPages(); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	if d.gzip, err = newCompressed(); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	return d, nil
}

// Listening returns a channel that is closed once the dashboard accepts connections.
func (d *Dashboard) Listening() <-chan struct{} { return d.listening }

// Addr returns the host:port of the listener, "" before [Dashboard.Listening].
func (d *Dashboard) Addr() string {
	select {
	case <-d.listening:
		return d.address
	default:
		return ""
	}
}

// Run serves until ctx ends, then ends the streams, waits up to 3 s for requests and returns nil. It
// returns an error if the address is in use or the certificate cannot be read. Without an address it
// only waits for ctx. A Dashboard runs once.
func (d *Dashboard) Run(ctx context.Context) error {
	if !d.cfg.Options.Enabled() {
		<-ctx.Done()
		return nil
	}
	options := d.cfg.Options
	listener, err := serve.Listen(ctx, options.Address, options.CertFile, options.KeyFile)
	if err != nil {
		return fmt.Errorf("listen on %s for the dashboard (--dashboard-address): %w", options.Address, err)
	}
	d.address = listener.Addr().String()
	d.cfg.Logger.Info("serving the dashboard", "address", d.address, "tls", options.CertFile != "")
	close(d.listening)
	group, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, d.streams.end) // also when the watches have failed
	defer stop()
	group.Go(func() error { return d.watch(ctx) })
	group.Go(func() error { return serve.HTTP(ctx, listener, d.handler(), d.cfg.Logger) })
	return group.Wait()
}

// watch counts changes, and notes those of states once it has seen what there is, until ctx ends.
func (d *Dashboard) watch(ctx context.Context) error {
	watches := []controller.Watch{controller.On(d.cfg.Works.Cache, d.workChanged)}
	if c := d.cfg.Clusters; c != nil {
		watches = append(watches, controller.On(c, d.clusterChanged))
	}
	if c := d.cfg.ReplicaSets; c != nil {
		watches = append(watches, controller.On(c, func(_, _ *workv1alpha1.ManifestWorkReplicaSet) { d.fleet.changed() }))
	}
	if err := controller.Follow(ctx, func() { d.following.Store(true) }, watches...); err != nil {
		return fmt.Errorf("dashboard: %w", err)
	}
	return nil
}

// workChanged notes a change of a work. It costs O(1).
func (d *Dashboard) workChanged(before, after *workv1.ManifestWork) {
	d.fleet.changed()
	if !d.following.Load() {
		return
	}
	c := change{Time: d.cfg.Now()}
	if before != nil {
		c.Namespace, c.Name = before.Namespace, before.Name
		c.From = rowOf(before).State
	}
	if after != nil {
		row := rowOf(after)
		c.Namespace, c.Name, c.To, c.Why = row.Namespace, row.Name, row.State, row.Why
	}
	if c.From != c.To {
		d.feed.add(c)
	}
}

// clusterChanged notes a change of a cluster. It costs O(1).
func (d *Dashboard) clusterChanged(before, after *clusterv1.ManagedCluster) {
	d.fleet.changed()
	if !d.following.Load() {
		return
	}
	c := change{Time: d.cfg.Now()}
	if before != nil {
		c.Namespace, c.From = before.Name, clusterRowOf(before.Name, before, true).State
	}
	if after != nil {
		row := clusterRowOf(after.Name, after, true)
		c.Namespace, c.To, c.Why = row.Name, row.State, row.Why
	}
	if c.From != c.To {
		d.feed.add(c)
	}
}

// handler returns the handler of all paths.
func (d *Dashboard) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /assets/{file}", d.gzip(http.HandlerFunc(d.pages.asset)))
	mux.HandleFunc("POST /login", d.login)
	mux.HandleFunc("POST /logout", d.logout)
	mux.HandleFunc("GET /events", d.stream)
	page := func(pattern, name string, build func(*visit) (view, error)) {
		mux.Handle("GET "+pattern, d.gzip(d.page(name, build)))
	}
	page("/{$}", "fleet", d.fleetPage)
	page("/works", "works", d.worksPage)
	page("/clusters/{cluster}", "cluster", d.clusterPage)
	page("/works/{cluster}/{name}", "work", d.workPage)
	page("/works/{cluster}/{name}/yaml", "yaml", d.yamlPage)
	page("/replicasets", "sets", d.setsPage)
	page("/replicasets/{namespace}/{name}", "set", d.setPage)
	page("/live", "live", d.livePage)
	page("/", "none", func(*visit) (view, error) { return view{}, errNotFound })
	return headers(http.NewCrossOriginProtection().Handler(mux))
}

// headers sets what has browsers keep others out.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for key, value := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
				"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options":       "nosniff",
			"X-Frame-Options":              "DENY",
			"Referrer-Policy":              "same-origin",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cache-Control":                "no-store",
		} {
			w.Header().Set(key, value)
		}
		next.ServeHTTP(w, r)
	})
}
