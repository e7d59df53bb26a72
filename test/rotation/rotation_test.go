package rotation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/certificates"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/leader"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	works = 6
	pause = 20 * time.Millisecond // between two changes of works
)

// TestRotation changes works all the while, renews every certificate, replaces the
// authority, and counts what got lost: no event, no session.
func TestRotation(t *testing.T) {
	onBothBrokers(t, func(w *world) {
		log := slog.New(slog.NewTextHandler(w.Output(), nil))
		hubLink, agentLink := w.link("hub", "hub", log.With("client", "hub")), w.link(w.cluster, w.cluster, log.With("client", "agent"))
		w.start(hubLink, agentLink, log)
		w.eventually("both connect", func() error {
			if hubLink.connections() == 0 || agentLink.connections() == 0 {
				return errors.New("they have not")
			}
			return nil
		})
		hubLink.begin()
		agentLink.begin()
		s := w.stream(plane.Namespace(w, "target"))
		s.goOn(10)
		first := w.issuer(w.cluster)

		step := func(what string, take func() (certificates.Report, error)) {
			hubBefore, agentBefore := hubLink.connections(), agentLink.connections()
			w.keep(take())
			w.eventually(what+": both connect anew", func() error {
				if hubNow, agentNow := hubLink.connections(), agentLink.connections(); hubNow == hubBefore || agentNow == agentBefore {
					return fmt.Errorf("connections: hub %d, before %d; agent %d, before %d", hubNow, hubBefore, agentNow, agentBefore)
				}
				return nil
			})
			s.goOn(10)
		}
		for range 3 {
			step("renew all", func() (certificates.Report, error) { return w.manager.Ensure(certificates.All) })
		}
		for _, s := range []certificates.Step{certificates.Trust, certificates.Issue, certificates.Drop} {
			step(string(s), func() (certificates.Report, error) { return w.manager.Rotate(s) })
		}
		changes := s.stop()

		w.eventually("every event arrives", func() error {
			specs, _ := hubLink.lost(agentLink)
			statuses, _ := agentLink.lost(hubLink)
			if specs+statuses > 0 {
				return fmt.Errorf("%d events of the hub and %d of the agent are lost", specs, statuses)
			}
			return nil
		})
		_, specs := hubLink.lost(agentLink)
		_, statuses := agentLink.lost(hubLink)
		if lost := hubLink.sessionsLost() + agentLink.sessionsLost(); lost > 0 {
			t.Errorf("%d connections found no session", lost)
		}
		if specs < changes/2 || statuses < works {
			t.Errorf("%d changes made %d and %d events only: was anything going on?", changes, specs, statuses)
		}
		w.Logf("%d changes of %d works: %d events to the agent and %d back, none lost; connections: hub %d, agent %d, all resumed",
			changes, works, specs, statuses, hubLink.connections(), agentLink.connections())
		last := w.issuer(w.cluster)
		if last == first {
			w.Errorf("the authority is %s as before", last)
		}
		if got := w.served(); got != last {
			w.Errorf("the broker shows a certificate of %s, want %s", got, last)
		}
	})
}

// start starts hub and agent.
func (w *world) start(hubLink, agentLink *counted, log *slog.Logger) {
	w.Helper()
	election := leader.NewOptions(hubName)
	election.Disabled = true
	h, err := hub.New(hub.Config{REST: plane.REST(), Source: hubName, Topics: topics(), Election: election, Logger: log, Transport: hubLink})
	if err != nil {
		w.Fatal(err)
	}
	a, err := agent.New(agent.Config{
		Cluster: wire.ClusterName(w.cluster), ClientID: w.cluster, AgentID: w.cluster, BrokerHost: w.broker.Addr,
		Topics: topics(), Transport: agentLink, Kube: plane.REST(), Logger: log,
	})
	if err != nil {
		w.Fatal(err)
	}
	for name, run := range map[string]func(context.Context) error{"hub": h.Run, "agent": a.Run} {
		ctx, cancel := context.WithCancel(w.ctx)
		ended := make(chan error, 1)
		go func() { ended <- run(ctx) }()
		w.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				w.Errorf("%s ended with %v", name, err)
			}
		})
	}
}

// stream changes works until it is stopped.
type stream struct {
	*world
	target  string // namespace of their ConfigMaps
	changes atomic.Int64
	end     context.CancelFunc
	ended   sync.WaitGroup
}

func (w *world) stream(target string) *stream {
	w.Helper()
	s := &stream{world: w, target: target}
	client := workclient.NewForConfigOrDie(plane.REST()).WorkV1().ManifestWorks(w.cluster)
	for i := range works {
		work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("work-%d", i)}}
		work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: s.manifest(i, 0)}}}
		if _, err := client.Create(w.ctx, work, metav1.CreateOptions{}); err != nil {
			w.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(w.ctx)
	s.end = cancel
	s.ended.Go(func() {
		for ctx.Err() == nil {
			n := s.changes.Load() + 1
			i := int(n) % works
			patch := fmt.Appendf(nil, `{"spec":{"workload":{"manifests":[%s]}}}`, s.manifest(i, n))
			if _, err := client.Patch(ctx, fmt.Sprintf("work-%d", i), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				if ctx.Err() == nil {
					w.Errorf("change work-%d: %v", i, err)
				}
				return
			}
			s.changes.Store(n)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	})
	w.Cleanup(func() { cancel(); s.ended.Wait() })
	return s
}

func (s *stream) manifest(i int, n int64) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%d","namespace":%q},"data":{"n":"%d"}}`, i, s.target, n)
}

// goOn waits until the cluster has seen so many more changes.
func (s *stream) goOn(more int64) {
	s.Helper()
	want := s.changes.Load() + more
	s.eventually("changes arrive at the cluster", func() error {
		list, err := kubernetes.NewForConfigOrDie(plane.REST()).CoreV1().ConfigMaps(s.target).List(s.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, c := range list.Items {
			var n int64
			if _, err := fmt.Sscan(c.Data["n"], &n); err == nil && n >= want {
				return nil
			}
		}
		return fmt.Errorf("%d has not arrived", want)
	})
}

// stop ends the stream, waits until every work is applied as it was last, here and at
// the cluster, and gives the number of changes.
func (s *stream) stop() int {
	s.Helper()
	s.end()
	s.ended.Wait()
	list := workclient.NewForConfigOrDie(plane.REST()).WorkV1().ManifestWorks(s.cluster)
	configMaps := kubernetes.NewForConfigOrDie(plane.REST()).CoreV1().ConfigMaps(s.target)
	for i := range works {
		s.eventually(fmt.Sprintf("work-%d is applied", i), func() error {
			work, err := list.Get(s.ctx, fmt.Sprintf("work-%d", i), metav1.GetOptions{})
			if err != nil {
				return err
			}
			applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
			if applied == nil || applied.Status != metav1.ConditionTrue || applied.ObservedGeneration != work.Generation {
				return fmt.Errorf("generation %d has %+v", work.Generation, applied)
			}
			c, err := configMaps.Get(s.ctx, fmt.Sprintf("c%d", i), metav1.GetOptions{})
			if err != nil {
				return err
			}
			if want := fmt.Sprintf(`"n":"%s"`, c.Data["n"]); !strings.Contains(string(work.Spec.Workload.Manifests[0].Raw), want) {
				return errors.New("the cluster has another value: " + want)
			}
			return nil
		})
	}
	return int(s.changes.Load())
}

// issuer gives the common name of who issued the certificate called name.
func (w *world) issuer(name string) string {
	w.Helper()
	pair, err := tls.LoadX509KeyPair(w.path(name+"/tls.crt"), w.path(name+"/tls.key"))
	if err != nil {
		w.Fatal(err)
	}
	return pair.Leaf.Issuer.CommonName
}

// served gives the common name of who issued the certificate that the broker shows.
func (w *world) served() string {
	w.Helper()
	data, err := os.ReadFile(w.path("broker/ca.crt"))
	if err != nil {
		w.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(data)
	conn, err := tls.Dial("tcp", w.broker.Addr, &tls.Config{ServerName: "127.0.0.1", RootCAs: pool})
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].Issuer.CommonName
}
