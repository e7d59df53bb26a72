package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Planes{Hub: &plane, Bare: true})
}

// leaseDuration is that of options.
const leaseDuration = 12 * time.Second

// options are those of a test's candidate: a lease short enough to wait for, and long enough for a
// machine that is busy with other tests.
func options(namespace, identity string) leader.Options {
	o := leader.NewOptions("lease")
	o.Namespace, o.Identity = namespace, identity
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = leaseDuration, leaseDuration*3/4, 200*time.Millisecond
	return o
}

// forever are options whose Lease does not expire while a test waits: what happens meanwhile does
// not happen because of time.
func forever(namespace, identity string) leader.Options {
	o := options(namespace, identity)
	o.LeaseDuration, o.RenewDeadline = time.Hour, time.Hour/2
	return o
}

// candidate is one running leader.Run.
type candidate struct {
	leads    chan struct{} // closed when its work began
	standsBy chan struct{} // closed when it found another leader
	returned chan error
	stop     context.CancelFunc
	requests *kit.Requests
}

// start runs a candidate whose work blocks until its context ends and then until end is closed, if
// there is one.
func start(t *testing.T, o leader.Options, config *rest.Config, end <-chan struct{}) *candidate {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	config = rest.CopyConfig(config)
	c := &candidate{leads: make(chan struct{}), standsBy: make(chan struct{}), returned: make(chan error, 1), stop: cancel, requests: kit.CountRequests(config)}
	finished := make(chan struct{})
	logger := slog.New(&lines{Handler: slog.NewTextHandler(t.Output(), nil), message: "standing by", found: sync.OnceFunc(func() { close(c.standsBy) })})
	go func() {
		defer close(finished)
		c.returned <- leader.Run(ctx, leader.Config{Options: o, REST: config, Logger: logger},
			func(ctx context.Context) error {
				close(c.leads)
				<-ctx.Done()
				if end != nil {
					<-end
				}
				return ctx.Err()
			})
	}()
	t.Cleanup(func() { cancel(); <-finished })
	return c
}

// lines is a log handler that waits for a message.
type lines struct {
	slog.Handler
	message string
	found   func()
}

func (l *lines) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == l.message {
		l.found()
	}
	return l.Handler.Handle(ctx, r)
}

func (l *lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &lines{Handler: l.Handler.WithAttrs(attrs), message: l.message, found: l.found}
}

func client(t *testing.T) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(plane.REST())
	kit.NoError(t, err)
	return c
}

func TestCleanStopHandsOverAtOnce(t *testing.T) {
	namespace := plane.Namespace(t, "clean")
	first := start(t, forever(namespace, "first"), plane.REST(), nil)
	kit.Receive(t, "the first leads", first.leads)
	second := start(t, forever(namespace, "second"), plane.REST(), nil)
	kit.Receive(t, "the second stands by", second.standsBy)
	stopped := time.Now()
	first.stop()
	kit.Receive(t, "the second leads", second.leads)
	t.Logf("handover took %s", time.Since(stopped))
	if err := kit.Receive(t, "the first returns", first.returned); !errors.Is(err, context.Canceled) {
		t.Errorf("the first returned %v, want its work's error", err)
	}
	lease := kit.Await(t, client(t).CoordinationV1().Leases(namespace), "lease", "is held by the second", func(lease *coordinationv1.Lease) bool {
		return lease != nil && ptr.Deref(lease.Spec.HolderIdentity, "") == "second"
	})
	if *lease.Spec.LeaseTransitions != 1 {
		t.Errorf("%d transitions, want 1", *lease.Spec.LeaseTransitions)
	}
}

func TestLeaseIsKeptWhileTheWorkEnds(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t, "ending")
	end := make(chan struct{})
	first := start(t, options(namespace, "first"), plane.REST(), end)
	kit.Receive(t, "the first leads", first.leads)
	second := start(t, options(namespace, "second"), plane.REST(), nil)
	kit.Receive(t, "the second stands by", second.standsBy)
	first.stop()
	select {
	case <-second.leads:
		t.Error("the second leads before the first one's work has ended")
	case <-time.After(leaseDuration + time.Second):
	}
	close(end)
	kit.Receive(t, "the second leads", second.leads)
}

func TestStandbySendsNoRequests(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t, "quiet")
	first := start(t, forever(namespace, "first"), plane.REST(), nil)
	kit.Receive(t, "the first leads", first.leads)
	standby := start(t, forever(namespace, "standby"), plane.REST(), nil)
	kit.Receive(t, "the standby stands by", standby.standsBy)
	before := len(first.requests.All())
	for len(first.requests.All()) < before+20 { // twenty renewals, four seconds
		select {
		case <-standby.leads:
			t.Fatal("the standby leads beside the first")
		case <-time.After(50 * time.Millisecond):
		}
	}
	// One read, and a list or two with the watch.
	if n := len(standby.requests.All()); n > 4 {
		t.Errorf("the standby sent %d requests", n)
	}
}

// cutOff is a client configuration whose connections can be cut.
func cutOff() (*rest.Config, func()) {
	config := plane.REST()
	ctx, cut := context.WithCancel(context.Background())
	config.Dial = func(dialing context.Context, network, address string) (net.Conn, error) {
		if ctx.Err() != nil {
			return nil, errors.New("cut off")
		}
		conn, err := new(net.Dialer).DialContext(dialing, network, address)
		if err == nil {
			context.AfterFunc(ctx, func() { _ = conn.Close() })
		}
		return conn, err
	}
	return config, cut
}

func TestVanishedLeaderIsReplacedAfterExpiry(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t, "vanish")
	config, cut := cutOff()
	first := start(t, options(namespace, "first"), config, nil)
	kit.Receive(t, "the first leads", first.leads)
	second := start(t, options(namespace, "second"), plane.REST(), nil)
	kit.Receive(t, "the second stands by", second.standsBy)
	cut()
	vanished := time.Now()
	if err := kit.Receive(t, "the first gives up", first.returned); !errors.Is(err, leader.ErrLost) {
		t.Errorf("the first returned %v, want ErrLost", err)
	}
	select {
	case <-second.leads:
		t.Error("the second led before the first had stopped")
	default:
	}
	kit.Receive(t, "the second leads", second.leads)
	// The last renewal was up to a retry period before the cut.
	if took := time.Since(vanished); took < leaseDuration-time.Second {
		t.Errorf("takeover after %s, want about the lease duration of %s", took, leaseDuration)
	}
}

// TestFirstTermCountsFromTheRequest: a leader that learns late that it leads, and cannot renew the Lease, gives up when others
// expect it.
func TestFirstTermCountsFromTheRequest(t *testing.T) {
	t.Parallel()
	o := options(plane.Namespace(t, "late"), "me")
	var answered time.Time // read when Run has returned
	c := start(t, o, kit.Intercept(plane.REST(), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPut {
			return nil, errors.New("cut off")
		}
		response, err := next.RoundTrip(r)
		if r.Method == http.MethodPost {
			<-time.After(o.RenewDeadline / 4)
			answered = time.Now()
		}
		return response, err
	}), nil)
	kit.Receive(t, "the candidate leads", c.leads)
	if err := kit.Receive(t, "it gives up", c.returned); !errors.Is(err, leader.ErrLost) {
		t.Errorf("it returned %v, want ErrLost", err)
	}
	if after := time.Since(answered); after >= o.RenewDeadline {
		t.Errorf("it gives up %s after the answer, want the renew deadline of %s after the request", after, o.RenewDeadline)
	}
}

func TestDeletedLeaseEndsLeadership(t *testing.T) {
	namespace := plane.Namespace(t, "deleted")
	first := start(t, forever(namespace, "first"), plane.REST(), nil)
	kit.Receive(t, "the first leads", first.leads)
	kit.NoError(t, client(t).CoordinationV1().Leases(namespace).Delete(t.Context(), "lease", metav1.DeleteOptions{}))
	if err := kit.Receive(t, "the first gives up", first.returned); !errors.Is(err, leader.ErrLost) {
		t.Errorf("the first returned %v, want ErrLost", err)
	}
	second := start(t, options(namespace, "second"), plane.REST(), nil)
	kit.Receive(t, "the second leads", second.leads)
}

func TestExpiredLeaseOfTheDeadIsTakenSoon(t *testing.T) {
	namespace := plane.Namespace(t, "dead")
	holder, seconds, long := "dead", int32(3600), metav1.NewMicroTime(time.Now().Add(-24*time.Hour))
	_, err := client(t).CoordinationV1().Leases(namespace).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "lease"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &long},
	}, metav1.CreateOptions{})
	kit.NoError(t, err)
	c := start(t, options(namespace, "living"), plane.REST(), nil)
	kit.Receive(t, "the candidate leads", c.leads)
}

func TestOnlyOneOfManyLeads(t *testing.T) {
	namespace := plane.Namespace(t, "many")
	var leading, most atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const replicas = 8
	returned := make(chan error, replicas)
	terms := make(chan struct{}, replicas)
	for i := range replicas {
		o := options(namespace, fmt.Sprint("replica-", i))
		go func() {
			returned <- leader.Run(ctx, leader.Config{Options: o, REST: plane.REST(), Logger: slog.New(slog.DiscardHandler)},
				func(ctx context.Context) error {
					if n := leading.Add(1); n > most.Load() {
						most.Store(n)
					}
					terms <- struct{}{}
					<-time.After(100 * time.Millisecond)
					leading.Add(-1)
					return nil
				})
		}()
	}
	for range replicas {
		if err := kit.Receive(t, "each replica has its term", returned); err != nil {
			t.Error(err)
		}
	}
	if len(terms) != replicas || most.Load() != 1 {
		t.Errorf("%d terms, at most %d at a time; want %d and 1", len(terms), most.Load(), replicas)
	}
}

// TestTerm: each term after a release, or after another replica led, has the next number, and a
// Lease that was made again has another UID.
func TestTerm(t *testing.T) {
	namespace := plane.Namespace(t, "term")
	lead := func(identity string) (term leader.Term) {
		t.Helper()
		kit.NoError(t, leader.Run(t.Context(), leader.Config{
			Options: options(namespace, identity), REST: plane.REST(), Logger: kit.Logger(t),
			Term: func(began leader.Term) { term = began },
		}, func(context.Context) error { return nil }))
		return term
	}
	first := lead("a")
	if first.Lease == "" {
		t.Error("the term names no Lease")
	}
	for i, identity := range []string{"a", "b", "a"} {
		if term, want := lead(identity), (leader.Term{Lease: first.Lease, Transitions: first.Transitions + int32(i) + 1}); term != want {
			t.Errorf("term %d, of %s, is %+v, want %+v", i, identity, term, want)
		}
	}
	kit.NoError(t, client(t).CoordinationV1().Leases(namespace).Delete(t.Context(), "lease", metav1.DeleteOptions{}))
	if term := lead("a"); term.Lease == first.Lease || term.Transitions != 0 {
		t.Errorf("the first term of another Lease is %+v, after %+v", term, first)
	}
}

func TestErrorsAreClear(t *testing.T) {
	namespace := plane.Namespace(t, "denied")
	denied := plane.REST()
	denied.Impersonate.UserName = "nobody"
	fail := func(context.Context) error { t.Error("the work was run"); return nil }
	for name, c := range map[string]struct {
		namespace string
		config    *rest.Config
		want      []string
		is        func(error) bool
	}{
		"no rights":    {namespace, denied, []string{"Lease " + namespace + "/lease", "grant create", "--disable-leader-election"}, apierrors.IsForbidden},
		"no namespace": {"nowhere", plane.REST(), []string{"create that namespace", "--leader-election-namespace"}, apierrors.IsNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			err := leader.Run(t.Context(), leader.Config{
				Options: options(c.namespace, "me"), REST: c.config, Logger: slog.New(slog.DiscardHandler),
			}, fail)
			if err == nil || !c.is(err) {
				t.Fatalf("error %v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want %q in it", err, want)
				}
			}
		})
	}
}

// TestForbiddenForAMoment: a candidate and a leader that are refused for less than the renew
// deadline go on.
func TestForbiddenForAMoment(t *testing.T) {
	var forbidden atomic.Int64
	forbidden.Store(5)
	config := kit.Intercept(plane.REST(), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if forbidden.Add(-1) < 0 {
			return next.RoundTrip(r)
		}
		return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})
	c := start(t, options(plane.Namespace(t, "moment"), "me"), config, nil)
	kit.Receive(t, "the candidate leads", c.leads)
	forbidden.Store(3)
	kit.True(t, "the Lease is renewed again", func() bool { return forbidden.Load() < -3 })
	select {
	case err := <-c.returned:
		t.Errorf("the leader gave up: %v", err)
	default:
	}
}

func TestUnreachableServerIsWaitedFor(t *testing.T) {
	config, cut := cutOff()
	cut()
	c := start(t, options("any", "me"), config, nil)
	for len(c.requests.All()) < 5 {
		select {
		case err := <-c.returned:
			t.Fatalf("gave up: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	c.stop()
	if err := kit.Receive(t, "Run returns", c.returned); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestDisabledRunsTheWork(t *testing.T) {
	want := errors.New("the work's")
	var told []bool
	err := leader.Run(t.Context(), leader.Config{
		Options: leader.Options{Disabled: true},
		Leading: func(leads bool) { told = append(told, leads) },
	}, func(context.Context) error { return want })
	if !errors.Is(err, want) || len(told) != 2 || !told[0] || told[1] {
		t.Errorf("error %v, told %v", err, told)
	}
}
