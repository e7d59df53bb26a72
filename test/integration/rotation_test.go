package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/world"
)

const (
	changing = 6                     // number of works that change
	pause    = 20 * time.Millisecond // between two changes of works
)

// TestRotation renews every certificate and replaces the authority while works change, and counts
// lost events and sessions: there are none.
func TestRotation(t *testing.T) {
	onBothSecuredBrokers(t, func(w *secured) {
		hubSide, agentSide := w.certified("hub", "hub"), w.certified(w.cluster(), w.cluster())
		w.StartHub(func(c *hub.Config) { c.Transport = hubSide })
		w.StartAgent(1, func(c *agent.Config) { c.Transport = agentSide })
		kit.Eventually(w, "both connect", func() error {
			if hubSide.connections() == 0 || agentSide.connections() == 0 {
				return errors.New("they have not")
			}
			return nil
		})
		hubSide.begin()
		agentSide.begin()
		s := w.stream()
		s.goOn(10)
		first := w.issuer(w.cluster())
		former, err := os.ReadFile(w.path(w.cluster() + "/ca.crt"))
		kit.NoError(w, err)

		steps := 0
		step := func(what string, take func() (certificates.Report, error)) {
			steps++
			hubBefore, agentBefore := hubSide.connections(), agentSide.connections()
			w.use(take())
			kit.Eventually(w, what+": both connect again", func() error {
				if hubNow, agentNow := hubSide.connections(), agentSide.connections(); hubNow == hubBefore || agentNow == agentBefore {
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

		kit.Eventually(w, "every event arrives", func() error {
			specs, _ := hubSide.lost(agentSide)
			statuses, _ := agentSide.lost(hubSide)
			if specs+statuses > 0 {
				return fmt.Errorf("%d events of the hub and %d of the agent are lost", specs, statuses)
			}
			return nil
		})
		_, specs := hubSide.lost(agentSide)
		_, statuses := agentSide.lost(hubSide)
		if lost := hubSide.sessionsLost() + agentSide.sessionsLost(); lost > 0 {
			t.Errorf("%d connections found no session", lost)
		}
		// Changes made while a side is disconnected coalesce, so a slow machine sees fewer events
		// than changes.
		if specs < steps*changing || statuses < changing {
			t.Errorf("%d changes made %d and %d events only: was anything going on?", changes, specs, statuses)
		}
		w.Logf("%d changes of %d works: %d events to the agent and %d back, none lost; connections: hub %d, agent %d, all resumed",
			changes, changing, specs, statuses, hubSide.connections(), agentSide.connections())
		last := w.issuer(w.cluster())
		if last == first {
			w.Errorf("the authority is %s as before", last)
		}
		trusted, err := os.ReadFile(w.path("broker/ca.crt"))
		kit.NoError(w, err)
		for who, authorities := range map[string][]byte{"trusts the new authority": trusted, "was away and trusts the former one": former} {
			if got := w.served(authorities); got != last {
				w.Errorf("whoever %s sees a certificate of %s, want %s", who, got, last)
			}
		}
	})
}

// stream changes works until it is stopped.
type stream struct {
	*secured
	changes atomic.Int64
	end     context.CancelFunc
	ended   sync.WaitGroup
}

func (w *secured) stream() *stream {
	w.Helper()
	s := &stream{secured: w}
	client := w.Works(1)
	for i := range changing {
		w.Create(client, w.Work(1, fmt.Sprintf("work-%d", i), "0", fmt.Sprintf("c%d", i)))
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.end = cancel
	s.ended.Go(func() {
		for ctx.Err() == nil {
			n := s.changes.Load() + 1
			i := int(n) % changing
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
	return world.ConfigMap(s.Targets[1], fmt.Sprintf("c%d", i), fmt.Sprint(n)).Raw
}

// goOn waits until that many more changes have arrived at the cluster.
func (s *stream) goOn(more int64) {
	s.Helper()
	want := s.changes.Load() + more
	kit.Eventually(s, "changes arrive at the cluster", func() error {
		list, err := s.ConfigMaps(1)
		if err != nil {
			return err
		}
		for _, c := range list {
			if n, err := strconv.ParseInt(c.Data["k"], 10, 64); err == nil && n >= want {
				return nil
			}
		}
		return fmt.Errorf("%d has not arrived", want)
	})
}

// stop ends the stream, waits until every work is applied as it was last changed, and returns the
// number of changes.
func (s *stream) stop() int {
	s.Helper()
	s.end()
	s.ended.Wait()
	want := map[string]string{}
	for i := range changing {
		name := fmt.Sprintf("work-%d", i)
		s.Applied(s.Works(1), name)
		work, err := s.Works(1).Get(s.Context(), name, metav1.GetOptions{})
		kit.NoError(s, err)
		var manifest corev1.ConfigMap
		kit.NoError(s, json.Unmarshal(work.Spec.Workload.Manifests[0].Raw, &manifest))
		want[manifest.Name] = manifest.Data["k"]
	}
	s.Holds(1, want)
	return int(s.changes.Load())
}

// issuer returns the common name of the issuer of the certificate called name.
func (w *secured) issuer(name string) string {
	w.Helper()
	pair, err := tls.LoadX509KeyPair(w.path(name+"/tls.crt"), w.path(name+"/tls.key"))
	kit.NoError(w, err)
	return pair.Leaf.Issuer.CommonName
}

// served returns the common name of the issuer of the broker's certificate, as verified with these authorities.
func (w *secured) served(authorities []byte) string {
	w.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authorities)
	conn, err := tls.Dial("tcp", w.Broker.Addr, &tls.Config{ServerName: "127.0.0.1", RootCAs: pool})
	kit.NoError(w, err)
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].Issuer.CommonName
}

// TestListOfHubInMosquitto: the revocation list that a hub keeps in its ConfigMap refuses a cluster at a broker that takes none from hubs.
func TestListOfHubInMosquitto(t *testing.T) {
	t.Parallel()
	w := &secured{World: newWorld(t), dir: t.TempDir()}
	w.configure("- {name: other, role: agent}")
	w.Broker = securedBrokers["mosquitto"](w)
	connects := func(name string) error {
		pair, err := tls.LoadX509KeyPair(w.path(name+"/tls.crt"), w.path(name+"/tls.key"))
		kit.NoError(w, err)
		conn, err := tls.Dial("tcp", w.Broker.Addr, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}})
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		// With TLS 1.3 a client learns of its refusal when it reads; who is let in is not told anything before it says something.
		kit.NoError(w, conn.SetReadDeadline(time.Now().Add(time.Second)))
		_, err = conn.Read(make([]byte, 1))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		return err
	}
	if err := connects(w.cluster()); err != nil {
		t.Fatalf("before it is revoked: %v", err)
	}
	revoked, err := tls.LoadX509KeyPair(w.path(w.cluster()+"/tls.crt"), w.path(w.cluster()+"/tls.key"))
	kit.NoError(t, err)
	authority, err := tls.LoadX509KeyPair(w.path("authority/ca.crt"), w.path("authority/ca.key"))
	kit.NoError(t, err)
	list, err := certificates.RevocationList(authority, []*big.Int{revoked.Leaf.SerialNumber}, big.NewInt(time.Now().UnixMilli()), time.Now())
	kit.NoError(t, err)
	kit.NoError(t, os.WriteFile(w.path("broker/ca.crl"), pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: list}), 0o644))
	w.Broker.Restart(t)
	if err := connects(w.cluster()); err == nil || !strings.Contains(err.Error(), "revoked certificate") {
		t.Errorf("the cluster that is revoked: %v", err)
	}
	if err := connects("other"); err != nil {
		t.Errorf("another cluster: %v", err)
	}
}
