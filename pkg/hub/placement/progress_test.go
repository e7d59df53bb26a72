package placement

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
)

// A look waits for what the last one wrote, however it comes to be seen.
func TestBehind(t *testing.T) {
	key := types.NamespacedName{Namespace: "ns", Name: "p"}
	object := func(name, uid, version string) *clusterv1beta1.PlacementDecision {
		return &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), ResourceVersion: version}}
	}
	placement := func(uid, version string) *clusterv1beta1.Placement {
		return &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: types.UID(uid), ResourceVersion: version}}
	}
	for _, test := range []struct {
		name   string
		echo   echo
		held   *clusterv1beta1.PlacementDecision
		of     *clusterv1beta1.Placement
		behind bool
	}{
		{name: "created, not seen", echo: echo{name: "d", uid: "1", version: "9"}, behind: true},
		{name: "created, seen", echo: echo{name: "d", uid: "1", version: "9"}, held: object("d", "1", "9")},
		{name: "updated, not seen", echo: echo{name: "d", uid: "1", version: "10"}, held: object("d", "1", "9"), behind: true},
		{name: "updated, seen with a later change", echo: echo{name: "d", uid: "1", version: "9"}, held: object("d", "1", "10")},
		{name: "deleted, not seen", echo: echo{name: "d", uid: "1"}, held: object("d", "1", "10"), behind: true},
		{name: "deleted, seen", echo: echo{name: "d", uid: "1"}},
		{name: "made anew by others", echo: echo{name: "d", uid: "1"}, held: object("d", "2", "10")},
		{name: "the placement, not seen", echo: echo{name: "p", uid: "p", version: "10", placement: true}, of: placement("p", "9"), behind: true},
		{name: "the placement, seen", echo: echo{name: "p", uid: "p", version: "10", placement: true}, of: placement("p", "10")},
		{name: "the placement is gone", echo: echo{name: "p", uid: "p", version: "10", placement: true}},
	} {
		p, placements, decisions := newProgress(), cache.NewStore(cache.MetaNamespaceKeyFunc), cache.NewStore(cache.MetaNamespaceKeyFunc)
		if test.held != nil {
			_ = decisions.Add(test.held)
		}
		if test.of != nil {
			_ = placements.Add(test.of)
		}
		p.await(key, test.echo, noon)
		if got := p.behind(key, placements, decisions, noon.Add(time.Second)); (got == 4*time.Second) != test.behind || (got == 0) == test.behind {
			t.Errorf("%s: waits for %s", test.name, got)
		}
		if got := p.behind(key, placements, decisions, noon.Add(5*time.Second)); got != 0 {
			t.Errorf("%s: waits for ever", test.name)
		}
		if got := p.behind(key, placements, decisions, noon.Add(time.Second)); got != 0 {
			t.Errorf("%s: waits again", test.name)
		}
	}
}

func TestRest(t *testing.T) {
	p, key := newProgress(), types.NamespacedName{Namespace: "ns", Name: "p"}
	if got := p.rest(key, noon); got != 0 {
		t.Errorf("at first: %s", got)
	}
	p.looked(key, noon)
	if got := p.rest(key, noon.Add(30*time.Millisecond)); got != pause-30*time.Millisecond {
		t.Errorf("after a look: %s", got)
	}
	if got := p.rest(key, noon.Add(time.Minute)); got > 0 {
		t.Errorf("after a long time: %s", got)
	}
	p.forget(key)
	if len(p.of) != 0 {
		t.Error("it is remembered")
	}
}

func TestReadyTellsWhatToDo(t *testing.T) {
	resource := clusterv1beta1.Resource("placements")
	for _, test := range []struct {
		err  error
		want string
	}{
		{nil, "have not been read yet"},
		{apierrors.NewNotFound(resource, ""), "apply deploy/crds"},
		{apierrors.NewForbidden(resource, "", errors.New("no")), "grant list and watch on placements.cluster.open-cluster-management.io"},
		{errors.New("connection refused"), "connection refused"},
		{apierrors.NewResourceExpired("too old"), "have not been read yet"},
	} {
		c, err := New(Config{Client: &versioned.Clientset{}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if test.err != nil {
			c.failed("placements", test.err)
		}
		if err := c.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("after %v: %v, want %q", test.err, err, test.want)
		}
		c.queue.ShutDown()
	}
}

func TestNewFailsWhenItsMetricsAreTaken(t *testing.T) {
	cfg := Config{Client: &versioned.Clientset{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.queue.ShutDown()
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "placement: ") {
		t.Errorf("%v", err)
	}
}

func TestSlim(t *testing.T) {
	meta := metav1.ObjectMeta{
		Name: "c", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"long": "text"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}
	c := &clusterv1.ManagedCluster{ObjectMeta: *meta.DeepCopy(), Status: clusterv1.ManagedClusterStatus{
		Conditions: []metav1.Condition{{Type: "x"}}, ClusterClaims: []clusterv1.ManagedClusterClaim{{Name: "a", Value: "b"}},
	}}
	d := &clusterv1beta1.PlacementDecision{ObjectMeta: *meta.DeepCopy()}
	for _, object := range []any{c, d} {
		if _, err := slim(object); err != nil {
			t.Error(err)
		}
	}
	if c.Annotations != nil || c.ManagedFields != nil || c.Status.Conditions != nil || len(c.Status.ClusterClaims) != 1 || len(c.Labels) != 1 {
		t.Errorf("%+v", c)
	}
	if d.ManagedFields != nil || len(d.Annotations) != 1 {
		t.Errorf("what is written back has lost annotations: %+v", d)
	}
}
