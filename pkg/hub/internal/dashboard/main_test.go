package dashboard

import (
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane}) }

// testClock is the time plus what a test adds.
type testClock struct {
	mu    sync.Mutex
	added time.Duration // guarded by mu
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.added)
}

// set has the clock show a time now.
func (c *testClock) set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.added = time.Until(now)
}

func (c *testClock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.added += d
}

// site is a running dashboard.
type site struct {
	*Dashboard
	t     testing.TB
	url   string
	log   *kit.Log
	clock *testClock
	stop  func()
}

// startSite runs a dashboard of the API that config reaches until the test ends.
func startSite(t testing.TB, config *rest.Config, change ...func(*Config)) *site {
	t.Helper()
	s := &site{t: t, log: &kit.Log{}, clock: &testClock{}}
	client, err := versioned.NewForConfig(config)
	kit.NoError(t, err)
	informers := controller.NewInformers(controller.InformersConfig{Client: client, Logger: slog.New(slog.DiscardHandler)})
	cache, err := works.NewCache(informers, nil)
	kit.NoError(t, err)
	yes := func() bool { return true }
	cfg := Config{
		Options: Options{Address: "127.0.0.1:0"}, REST: config, Works: cache,
		Clusters: informers.ManagedClusters(), ReplicaSets: informers.ManifestWorkReplicaSets(),
		Leading: yes, Connected: yes, Current: informers.Ready, Now: s.clock.Now, Logger: s.log.Logger(),
	}
	for _, f := range change {
		f(&cfg)
	}
	s.Dashboard, err = New(cfg)
	kit.NoError(t, err)
	kit.Run(t, "informers", informers.Run)
	if !cache.WaitForSync(t.Context()) || !cfg.Clusters.WaitForSync(t.Context()) || !cfg.ReplicaSets.WaitForSync(t.Context()) {
		t.Fatal("the caches are not filled")
	}
	s.stop = kit.Run(t, "dashboard", s.Run)
	kit.Receive(t, "the dashboard listens", s.Listening())
	kit.True(t, "changes are noted", s.following.Load)
	s.url = "http://" + s.Addr()
	return s
}

// account creates a ServiceAccount and returns a token of it, and its name as a user.
func account(t testing.TB, namespace, name string) (token, user string) {
	t.Helper()
	core := kubernetes.NewForConfigOrDie(plane.REST()).CoreV1().ServiceAccounts(namespace)
	_, err := core.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	kit.NoError(t, err)
	answer, err := core.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	kit.NoError(t, err)
	return answer.Status.Token, "system:serviceaccount:" + namespace + ":" + name
}

// mayList lets a ServiceAccount list works, replica sets and what more says in a namespace; "" is everywhere.
func mayList(t testing.TB, accountNamespace, name, namespace string, more ...rbacv1.PolicyRule) {
	t.Helper()
	rbac := kubernetes.NewForConfigOrDie(plane.REST()).RbacV1()
	meta := metav1.ObjectMeta{Name: kit.Unique("viewer")}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{workv1.GroupName}, Resources: []string{worksResource, setsResource}, Verbs: []string{"list"}}}
	rules = append(rules, more...)
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: accountNamespace, Name: name}}
	_, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	kit.NoError(t, err)
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name}
	if namespace == "" {
		_, err = rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: role, Subjects: subjects}, metav1.CreateOptions{})
	} else {
		_, err = rbac.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: role, Subjects: subjects}, metav1.CreateOptions{})
	}
	kit.NoError(t, err)
}

// request asks for a path with a token; "" for none.
func (s *site) request(method, path, token string) *http.Request {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, nil)
	kit.NoError(s.t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}
