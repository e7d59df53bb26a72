// Package joins lets clusters in that ask over the broker (docs/join.md): it answers their requests, makes their
// ManagedClusters and CertificateSigningRequests, and signs the approved ones if it has an authority.
//
//	j, err := joins.New(joins.Config{Core: core, Clusters: informers.ManagedClusters(), ...})
//	...
//	err = j.Run(ctx)
//
// What becomes of a request is decided by package enrolment. A request writes to the API only once its sender has shown that it has
// the device key that it names, that it read the challenge, and a token of the hub or a device that has joined. Requests have a connection
// and a queue of their own, so that no number of them delays the works of clusters; those beyond what the hub handles are dropped, and
// clusters ask again.
package joins

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	certificatesv1client "k8s.io/client-go/kubernetes/typed/certificates/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/runtime/listwatch"
	"github.com/workwire/workwire/pkg/runtime/required"
	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// Bounds of what requests cost.
const (
	queued   = 512                // requests that wait
	workers  = 4                  // requests, and certificates, that are handled at a time
	perSec   = 100                // answers
	keptDone = time.Hour          // CertificateSigningRequests that are decided
	keptOpen = 7 * 24 * time.Hour // CertificateSigningRequests that nobody approves
)

// Config configures [Joins].
type Config struct {
	// Core reads Secrets, Certificates reads and writes CertificateSigningRequests; Clusters has the ManagedClusters, and Writer writes them; required.
	// A clientset as an interface would link the clients of all API groups.
	Core         corev1client.CoreV1Interface
	Certificates certificatesv1client.CertificatesV1Interface
	Writer       versioned.Interface
	Clusters     *controller.Cache[*clusterv1.ManagedCluster]
	// Namespace has the Secrets of tokens; required.
	Namespace string
	// Source is the id of the hub, Topics those of the transport; required.
	Source wire.SourceID
	Topics wire.Topics
	// Transport is a connection of its own to the broker; required. Run runs it.
	Transport transport.Transport
	// Certificate is that of the hub at the broker, which signs answers; Trust are the authorities that agents are to trust, in PEM.
	// Both are called for each answer; required.
	Certificate func() (tls.Certificate, error)
	Trust       func() ([]byte, error)
	// Authority signs approved CertificateSigningRequests; nil: somebody else does. AuthorityElsewhere says that a signature takes long.
	Authority          func() (tls.Certificate, error)
	AuthorityElsewhere bool
	// SignerName of the CertificateSigningRequests; required.
	SignerName string
	// Validity of certificates that Authority signs; required. Rejoin is how long after the end of its certificate a device may come back.
	Validity, Rejoin time.Duration
	// Registerer gets the metrics workwire_hub_join_requests_total, workwire_hub_revoked_certificates,
	// workwire_hub_revocation_list_untaken and workwire_hub_revocation_list_outdated; default none.
	Registerer prometheus.Registerer
	// Logger gets a line for each cluster that is let in or refused, at most 10 a second; default slog.Default().
	Logger *slog.Logger
}

// asked is who waits for a CertificateSigningRequest.
type asked struct {
	request     string // its id
	device      string // its hash
	certificate []byte // PEM, that its ManagedCluster was made with; nil if it is yet to be issued
}

// Joins answers requests. Its methods are safe for concurrent use.
type Joins struct {
	cfg        Config
	topics     enrolment.Topics
	challenges *enrolment.Challenges
	requests   chan enrolment.Proven
	answers    flowcontrol.RateLimiter
	lines      flowcontrol.RateLimiter
	metrics    metrics
	queue      *controller.Controller[string] // names of CertificateSigningRequests
	csrs       cache.SharedIndexInformer
	latest     cache.MutationCache // csrs, with what was written and not seen yet: nothing is signed twice
	tokens     cache.SharedIndexInformer

	registering sync.Mutex // held while a cluster joins with a token

	revised  chan struct{}   // holds a token when the revocation list may have changed, or the broker may not have it
	revoking sync.Mutex      // held while it is revised
	compared []byte          // guarded by revoking: the last list that the broker, which was asked, has none after
	unsure   map[string]bool // guarded by revoking: ManagedClusters that may have another device than the informer knows: that write has failed, or its answer

	answering chan struct{} // closed by keepRevocations once the broker was asked for the first time, or there is nothing to ask: nobody is answered before
	outdated  atomic.Bool   // the broker has a newer list

	mu    sync.Mutex
	asked map[string]asked   // guarded by mu: who waits for a CertificateSigningRequest, by its name
	gone  []enrolment.Holder // guarded by mu: who was revoked and is deleted, and may not be on the list yet
}

// New returns what answers requests. It does no I/O. It reports every fault of cfg.
func New(cfg Config) (*Joins, error) {
	if err := required.Fields(cfg, "Core", "Certificates", "Writer", "Clusters", "Namespace", "Source", "Transport", "Certificate", "Trust", "SignerName", "Validity"); err != nil {
		return nil, fmt.Errorf("joins: %w", err)
	}
	topics, err := enrolment.TopicsOf(cfg.Topics, cfg.Source)
	if err != nil {
		return nil, fmt.Errorf("joins: %w", err)
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	j := &Joins{
		cfg: cfg, topics: topics, challenges: enrolment.NewChallenges(), requests: make(chan enrolment.Proven, queued),
		answers: flowcontrol.NewTokenBucketRateLimiter(perSec, 2*perSec), lines: flowcontrol.NewTokenBucketRateLimiter(10, 50),
		asked: make(map[string]asked), revised: make(chan struct{}, 1), answering: make(chan struct{}),
		unsure: make(map[string]bool), metrics: newMetrics(),
	}
	if err := errors.Join(j.watch(), controller.Register(cfg.Registerer, j.metrics.results, j.metrics.revoked, j.metrics.untaken, j.metrics.outdated)); err != nil {
		return nil, fmt.Errorf("joins: %w", err)
	}
	return j, nil
}

// watch makes what is read of the hub's API. Run runs it.
func (j *Joins) watch() error {
	// By the typed client, which reads protobuf.
	j.csrs = cache.NewSharedIndexInformer(listwatch.Of(j.cfg.Certificates.CertificateSigningRequests(), func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.signerName", j.cfg.SignerName).String()
		o.LabelSelector = v1alpha1.SourceLabelKey + "=" + string(j.cfg.Source)
	}, nil), &certificatesv1.CertificateSigningRequest{}, 0, cache.Indexers{undone: indexUndone})
	j.tokens = cache.NewSharedIndexInformer(listwatch.Of(j.cfg.Core.Secrets(j.cfg.Namespace), func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("type", v1alpha1.JoinTokenSecretType).String()
	}, nil), &corev1.Secret{}, 0, nil)
	changed := func(object any) {
		if csr, ok := object.(*certificatesv1.CertificateSigningRequest); ok {
			j.queue.Add(csr.Name)
		}
	}
	j.latest = cache.NewIntegerResourceVersionMutationCache(klog.Background(), j.csrs.GetStore(), j.csrs.GetIndexer(), time.Minute, false)
	unread := func() error {
		return errors.New("tokens and CertificateSigningRequests have not been read yet; the hub needs the rights in docs/join.md")
	}
	var err error
	j.queue, err = controller.New(controller.Config[string]{
		Name: "joins", Reconcile: j.advance, Workers: workers, Backoff: 100 * time.Millisecond, Logger: j.cfg.Logger,
		Watches: []controller.Watch{
			controller.OnInformer(j.csrs, cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, object any) { changed(object) }, DeleteFunc: j.deleted}, unread),
			controller.OnInformer(j.tokens, nil, unread), controller.On[*clusterv1.ManagedCluster](j.cfg.Clusters, nil),
		},
	})
	if err != nil {
		return err
	}
	if err := j.cfg.Clusters.AddIndexers(cache.Indexers{revokedClusters: indexRevoked, joinedWith: indexToken}); err != nil {
		return err
	}
	_, err = j.cfg.Clusters.AddEventHandler(j.changed) // of a standby, too: it must know who is deleted while it is revoked
	return err
}

// Run answers requests until ctx ends; it returns nil then, when everything that it started has ended. It must be called once.
func (j *Joins) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { j.csrs.RunWithContext(ctx); return nil })
	group.Go(func() error { j.tokens.RunWithContext(ctx); return nil })
	group.Go(func() error { return j.queue.Run(ctx) })
	if !j.queue.WaitForSync(ctx) {
		return group.Wait()
	}
	for range workers {
		group.Go(func() error { j.handle(ctx); return nil })
	}
	group.Go(func() error {
		return j.cfg.Transport.Run(ctx, transport.Handler{Subscriptions: []string{j.topics.Requests()}, Received: j.receive, Connected: j.connected})
	})
	group.Go(func() error { j.keepRevocations(ctx); return nil })
	group.Go(func() error { j.tellToRenew(ctx); return nil })
	return group.Wait()
}

// Ready returns why no requests are answered; nil if they are.
func (j *Joins) Ready(ctx context.Context) error { return j.queue.Ready(ctx) }

// receive queues a request; one that finds no room is dropped, and its cluster asks again.
func (j *Joins) receive(_ context.Context, m transport.Message) {
	m.Ack()
	if m.Err != nil {
		j.metrics.results.WithLabelValues("Invalid").Inc()
		return
	}
	request, err := enrolment.ReadRequest(m.Event, j.cfg.Source)
	if err != nil {
		j.metrics.results.WithLabelValues("Invalid").Inc()
		if !j.quiet() {
			j.cfg.Logger.Info("a request to join cannot be used", "error", err)
		}
		return
	}
	select {
	case j.requests <- request:
	default:
		j.metrics.results.WithLabelValues("Dropped").Inc()
	}
}

// quiet reports whether clients have caused too many lines.
func (j *Joins) quiet() bool { return !j.lines.TryAccept() }

func (j *Joins) handle(ctx context.Context) {
	select {
	case <-j.answering:
	case <-ctx.Done():
	}
	for {
		select {
		case request := <-j.requests:
			answer := j.answer(ctx, request)
			if answer.Reason == "" {
				continue
			}
			j.metrics.results.WithLabelValues(string(answer.Reason)).Inc()
			if answer.Reason != enrolment.Challenged && !j.quiet() {
				j.cfg.Logger.Info("a cluster asks for a certificate", "cluster", request.Cluster, "reason", answer.Reason, "message", answer.Message)
			}
			j.publish(ctx, answer)
		case <-ctx.Done():
			return
		}
	}
}

// publish answers a request, unless there are too many answers.
func (j *Joins) publish(ctx context.Context, a enrolment.Answer) {
	if !j.answers.TryAccept() {
		return
	}
	j.sendAnswer(ctx, a, time.Time{})
}

// grant returns what the hub has of a token; nil if it has none.
func (j *Joins) grant(id string) *enrolment.Grant {
	if id == "" {
		return nil
	}
	object, found, err := j.tokens.GetStore().GetByKey(j.cfg.Namespace + "/" + v1alpha1.JoinTokenNamePrefix + id)
	secret, ok := object.(*corev1.Secret)
	if err != nil || !found || !ok {
		return nil
	}
	var g enrolment.Grant
	if err := json.Unmarshal(secret.Data[v1alpha1.JoinTokenKey], &g); err != nil || g.ID() != id {
		if !j.quiet() {
			j.cfg.Logger.Warn("the Secret of a token cannot be used: delete it", "secret", secret.Name, "error", err)
		}
		return nil
	}
	return &g
}

// deleted forgets who waits for a CertificateSigningRequest that is gone.
func (j *Joins) deleted(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	if csr, ok := object.(*certificatesv1.CertificateSigningRequest); ok {
		j.waiting(csr.Name)
	}
}

// wait notes who waits for a CertificateSigningRequest.
func (j *Joins) wait(csr string, a asked) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked[csr] = a
}

// waiting returns who waits for a CertificateSigningRequest, and forgets it; nothing if nobody does.
func (j *Joins) waiting(csr string) asked {
	j.mu.Lock()
	defer j.mu.Unlock()
	a := j.asked[csr]
	delete(j.asked, csr)
	return a
}

// prepared returns the certificate that a ManagedCluster was made with, for its CertificateSigningRequest; nil if there is none.
func (j *Joins) prepared(csr string) []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.asked[csr].certificate
}
