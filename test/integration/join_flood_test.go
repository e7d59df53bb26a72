package integration

import (
	"bytes"
	"context"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/broker/limits"
	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/join"
	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/mqttflood"
	"github.com/workwire/workwire/test/kit/world"
)

var (
	floodTurns = flag.Int("flood-turns", 2, "turns of 25 changes that TestJoinersFlood times during each flood, and as many without it")
	requests   = flag.Int("requests", 2_000, "number of requests of TestManyRequests")
)

// stranger returns the request of a cluster and a device that nobody knows, with a token that the hub does not have.
func stranger(unknown enrolment.Token) (cloudevents.Event, error) {
	name := wire.ClusterName(kit.Unique("stranger"))
	device, err := enrolment.NewKey()
	if err != nil {
		return cloudevents.Event{}, err
	}
	public, err := enrolment.DeviceOf(device)
	if err != nil {
		return cloudevents.Event{}, err
	}
	csr, err := enrolment.NewCSR(name, device)
	if err != nil {
		return cloudevents.Event{}, err
	}
	r := enrolment.Request{ID: enrolment.NewID(), Source: unknown.Source, Cluster: name, Device: public, CSR: csr, Token: unknown.ID(), Challenge: make([]byte, 40)}
	return r.Sign(device, unknown.Key())
}

// floods are what attackers send.
var floods = map[string]func(unknown enrolment.Token) (cloudevents.Event, error){
	"requests as of agents": stranger,
	"small requests":        func(unknown enrolment.Token) (cloudevents.Event, error) { return request(unknown, "{}") },
	"large requests": func(unknown enrolment.Token) (cloudevents.Event, error) {
		return request(unknown, strings.Repeat("{", 10_000))
	},
}

// request returns an event of the type of requests.
func request(unknown enrolment.Token, data string) (cloudevents.Event, error) {
	e := cloudevents.New()
	e.SetID(enrolment.NewID())
	e.SetType("dev.workwire.v1alpha1.joins.spec.create_request")
	e.SetSource(string(unknown.Source))
	return e, e.SetData(cloudevents.ApplicationJSON, []byte(data))
}

// attacker has the process that it is set for flood the hub of a token, which follows the name of the flood.
const attacker = "WORKWIRE_JOINER"

// attack sends requests until the end of stdin, in a process that the test started. Whoever attacks has a machine of their own.
func attack(what, text string) error {
	unknown, err := enrolment.ParseToken(text)
	if err != nil {
		return err
	}
	topics, err := enrolment.TopicsOf(unknown.Topics, unknown.Source)
	if err != nil {
		return err
	}
	ca := &bytes.Buffer{}
	for _, der := range unknown.Authorities {
		_ = pem.Encode(ca, &pem.Block{Type: "CERTIFICATE", Bytes: der}) // a buffer never fails
	}
	tr, err := mqtt.New(mqtt.Config{ClientID: "attacker", Broker: config.Config{
		BrokerHost: unknown.Broker, CA: config.PEM{Data: ca.Bytes()}, Username: unknown.Username, Password: unknown.Password,
	}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return tr.Run(ctx, transport.Handler{Received: ignore, Connected: func(context.Context, transport.Connection) {}})
	})
	for range 8 {
		group.Go(func() error {
			for ctx.Err() == nil {
				e, err := floods[what](unknown)
				if err != nil {
					return err
				}
				_ = tr.Publish(ctx, topics.Requests(), e)
			}
			return nil
		})
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return group.Wait()
}

// flood has a process of the lowest priority flood the hub, and returns what ends it once it sends as much as the broker lets it, and
// returns the CPU time that it has used.
func (w *joining) flood(what string, unknown enrolment.Token) (stop func() time.Duration) {
	w.Helper()
	program, err := os.Executable()
	kit.NoError(w, err)
	cmd := exec.Command("nice", "-n", "19", program)
	cmd.Env, cmd.Stderr = append(os.Environ(), attacker+"="+what+"="+unknown.String()), os.Stderr
	in, err := cmd.StdinPipe()
	kit.NoError(w, err)
	kit.NoError(w, cmd.Start())
	stop = sync.OnceValue(func() time.Duration {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			w.Errorf("the attacker: %v", err)
			return 0
		}
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	})
	w.Cleanup(func() { stop() })
	heard, began := w.heard(), time.Now()
	kit.True(w, "the flood, after what may be sent at once", func() bool { return w.heard() > heard+100 && time.Since(began) > time.Second })
	return stop
}

// noStranger fails the test if the hub has written anything for strangers.
func (w *joining) noStranger() {
	w.Helper()
	clusters, err := w.clusters.ClusterV1().ManagedClusters().List(w.Context(), metav1.ListOptions{})
	kit.NoError(w, err)
	for _, c := range clusters.Items {
		if strings.HasPrefix(c.Name, "stranger-") {
			w.Errorf("there is a ManagedCluster %s", c.Name)
		}
	}
	csrs, err := w.planes.CertificatesV1().CertificateSigningRequests().List(w.Context(), metav1.ListOptions{LabelSelector: v1alpha1.SourceLabelKey + "=" + string(w.Source)})
	kit.NoError(w, err)
	for _, csr := range csrs.Items {
		if strings.HasPrefix(csr.Labels[v1alpha1.ClusterLabelKey], "stranger-") {
			w.Errorf("there is a CertificateSigningRequest %s", csr.Name)
		}
	}
}

// heard returns how many requests to join have reached the hub.
func (w *joining) heard() float64 {
	return kit.Gather(w, w.hub.Metrics).Sum("workwire_hub_join_requests_total")
}

// TestJoinersFlood: whoever has the password of the joining identity and floods the hub with requests makes it write nothing, and keeps
// neither a cluster from its works nor another one from joining. Changes of a work are timed with a flood and without, in turns.
func TestJoinersFlood(t *testing.T) {
	t.Parallel()
	w := newJoining(t, nil)
	name := w.Clusters[1]
	m := w.device(name, w.token(name, nil)).joined()
	tr, err := w.connect(m.Broker(), string(name)+"-agent")
	kit.NoError(t, err)
	w.StartAgent(1, func(c *agent.Config) { c.Transport, c.Topics = tr, m.Broker().Topics })
	w.Create(w.Works(1), w.Work(1, "web", "0", "a"))
	w.Applied(w.Works(1), "web")
	serial := 0
	change := func() time.Duration {
		serial++
		patch := fmt.Appendf(nil, `{"spec":{"workload":{"manifests":[%s]}}}`, world.ConfigMap(w.Targets[1], "a", fmt.Sprint(serial)).Raw)
		began := time.Now()
		_, err := w.Works(1).Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{})
		kit.NoError(t, err)
		w.Applied(w.Works(1), "web")
		return time.Since(began)
	}

	unknown, _, err := join.TokenOf(w.broker(), "", joinerUser, "public")
	kit.NoError(t, err)
	for what := range floods {
		var quiet, flooded []time.Duration
		var lasted, attacked, used time.Duration // used: by this process, with the flood in excess of without
		var heard float64
		for range *floodTurns {
			cpu := ownCPU(t)
			for range 25 {
				quiet = append(quiet, change())
			}
			used -= ownCPU(t) - cpu
			stop := w.flood(what, unknown)
			began, before := time.Now(), w.heard()
			cpu = ownCPU(t)
			for range 25 {
				flooded = append(flooded, change())
			}
			used += ownCPU(t) - cpu
			lasted += time.Since(began)
			heard += w.heard() - before
			attacked += stop()
		}
		slices.Sort(quiet)
		slices.Sort(flooded)
		t.Logf("%s, %.0f a second: a change is applied in %s at the median, without them in %s; 99th percentile %s, %s; hub and broker take %.1f %% of a CPU, the attacker has taken %s in %d turns",
			what, heard/lasted.Seconds(), rounded(flooded, .5), rounded(quiet, .5), rounded(flooded, .99), rounded(quiet, .99), 100*used.Seconds()/lasted.Seconds(), attacked, *floodTurns)
		limit := 3 * max(mqttflood.Quantile(quiet, .5), 100*time.Millisecond) // tests run beside this one
		if took := mqttflood.Quantile(flooded, .5); took > limit {
			t.Errorf("%s: a change takes %s, without them %s, want %s at most", what, took, rounded(quiet, .5), limit)
		}
	}
	stop := w.flood("requests as of agents", unknown)
	other := wire.ClusterName(kit.Unique("other"))
	w.device(other, w.token(other, nil)).joined()
	stop()
	w.noStranger()
}

// ownCPU returns the CPU time that this process has used.
func ownCPU(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	kit.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func rounded(sorted []time.Duration, q float64) time.Duration {
	return mqttflood.Quantile(sorted, q).Round(100 * time.Microsecond)
}

// TestManyRequests: requests that no limit of a broker keeps back leave nothing in the hub: half of them are of a cluster and a device each, and
// half of a device that has a challenge of the hub. The broker, which is in this process, too, keeps nothing either.
func TestManyRequests(t *testing.T) { //nolint:paralleltest // measures the heap of the process
	w := newJoining(t, func(w *joining) { w.limits.Joiner = limits.Rate{MessagesPerSecond: 1 << 20, BytesPerSecond: 1 << 30} })
	unknown, _, err := join.TokenOf(w.broker(), "", joinerUser, "public")
	kit.NoError(t, err)
	a := w.asker(wire.ClusterName(kit.Unique("stranger")), unknown)
	send := func(n int) {
		var group errgroup.Group
		var next atomic.Int64
		for range 16 {
			group.Go(func() error {
				for i := next.Add(1); i <= int64(n); i = next.Add(1) {
					e, err := stranger(unknown)
					if i%2 == 0 {
						e, err = a.request(a.csr()).Sign(a.device, unknown.Key())
					}
					if err != nil {
						return err
					}
					if err := a.conn.Publish(t.Context(), a.topics.Requests(), e); err != nil {
						return err
					}
				}
				return nil
			})
		}
		kit.NoError(t, group.Wait())
	}
	heap := func() float64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return float64(stats.HeapAlloc) / (1 << 20)
	}
	send(500) // what is made once is there
	kit.True(t, "the hub has heard them", func() bool { return w.heard() >= 200 })
	before, heard, began := heap(), w.heard(), time.Now()
	send(*requests)
	kit.True(t, "the hub has heard all", func() bool { return w.heard() >= heard+float64(*requests) })
	took, after := time.Since(began), heap()
	t.Logf("%d requests in %s, %.0f a second: the heap of hub and broker has %.1f MB, before %.1f MB; what became of them: %v", *requests, took.Round(time.Second),
		float64(*requests)/took.Seconds(), after, before, kit.Gather(t, w.hub.Metrics).ByLabel("workwire_hub_join_requests_total", "result"))
	if after > before+4 {
		t.Errorf("the heap has %.1f MB, before %d requests %.1f MB", after, *requests, before)
	}
	w.noStranger()
}
