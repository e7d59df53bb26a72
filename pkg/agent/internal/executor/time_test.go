package executor_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
)

// clock is an executor of key "work" in a bubble of time.
type clock struct {
	*testing.T
	server  *server
	checks  *executor.Executor[string]
	changed chan string
}

var account = executor.Account{Namespace: "default", Name: "executor1"}

// inBubble runs a test with an executor that runs, and whose watches are open.
func inBubble(t *testing.T, inMemory, noWatches bool, test func(*clock)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &clock{T: t, server: &server{watches: map[string]*io.PipeWriter{}, noWatches: noWatches}, changed: make(chan string, 100)}
		config := dynamic.ConfigFor(&rest.Config{Host: "https://cluster.example.com", QPS: -1})
		config.GroupVersion = &schema.GroupVersion{}
		client, err := rest.UnversionedRESTClientForConfigAndClient(config, &http.Client{Transport: c.server})
		if err != nil {
			t.Fatal(err)
		}
		c.checks = newExecutor(t, executor.Config[string]{
			Client: client, InMemory: inMemory, Changed: func(key string) { c.changed <- key }, Logger: slog.New(slog.DiscardHandler),
		})
		c.checks.Follow("work", nil, &account)
		go func() {
			if err := c.checks.Run(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		if !noWatches {
			c.wantOpen("at the start", 4)
		}
		time.Sleep(10 * time.Second) // what was read at the start has settled
		test(c)
	})
}

// says checks a manifest, and what that costs.
func (c *clock) says(when string, m *strategy.Manifest, allowed bool, recheck time.Duration, requests int) {
	c.Helper()
	got, err := c.checks.Check(c.Context(), account, m)
	var denied *executor.DeniedError
	if err != nil && !errors.As(err, &denied) {
		c.Fatal(err)
	}
	if asked := c.server.asked(); (err == nil) != allowed || got != recheck || asked != requests {
		c.Errorf("%s: %v, again in %v, %d requests; want allowed %t, again in %v, %d requests", when, err, got, asked, allowed, recheck, requests)
	}
}

// told counts how often the follower was told, once all has settled.
func (c *clock) told() int {
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	n := 0
	for {
		select {
		case <-c.changed:
			n++
		default:
			return n
		}
	}
}

func (c *clock) wantOpen(when string, want int) {
	c.Helper()
	if n := c.server.open(); n != want {
		c.Errorf("%s: %d watches, want %d", when, n, want)
	}
}

// rules are the fields of a role that allows verbs on everything.
func rules(verbs ...any) map[string]any {
	return map[string]any{"rules": []any{map[string]any{"verbs": verbs, "apiGroups": []any{"*"}, "resources": []any{"*"}}}}
}

// bound are the fields of a binding of the ClusterRole r to a subject.
func bound(kind, namespace, name string) map[string]any {
	return map[string]any{
		"roleRef":  map[string]any{"kind": "ClusterRole", "name": "r"},
		"subjects": []any{map[string]any{"kind": kind, "namespace": namespace, "name": name}},
	}
}

// wantTold checks how often the follower was told.
func (c *clock) wantTold(what string, want int) {
	c.Helper()
	if n := c.told(); n != want {
		c.Fatalf("%s: told %d times", what, n)
	}
}

func widget() *strategy.Manifest {
	return &strategy.Manifest{Owned: true, Ref: object.Ref{
		GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, Namespace: "a", Name: "w",
	}}
}

// TestHowLongAnswersAreKept has the API server's answers change without RBAC.
func TestHowLongAnswersAreKept(t *testing.T) {
	for name, noWatches := range map[string]bool{"watched": false, "not permitted to watch": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, false, noWatches, func(c *clock) {
				m := widget()
				c.says("denied", m, false, time.Minute, 1)
				c.server.set(true)
				time.Sleep(50 * time.Second)
				c.says("kept", m, false, 10*time.Second, 0)
				time.Sleep(10 * time.Second)
				c.says("asked again", m, true, 5*time.Minute, 5)
				c.server.set(false)
				time.Sleep(4 * time.Minute)
				c.says("kept", m, true, time.Minute, 0)
				time.Sleep(45 * time.Second)
				c.says("asked early by who needs it anyway", m, false, time.Minute, 1)

				m.Owned = false
				c.server.set(true)
				c.says("without delete", m, true, 5*time.Minute, 4)
				other := executor.Account{Namespace: "default", Name: "executor2"}
				for range 2 {
					if _, err := c.checks.Check(c.Context(), other, m); err != nil || c.server.asked() != 4 {
						t.Errorf("an account that nobody follows: %v", err)
					}
				}
			})
		})
	}
}

// TestChangesEndAnswers has RBAC change, and the API server answer from before for a while.
func TestChangesEndAnswers(t *testing.T) {
	inBubble(t, false, false, func(c *clock) {
		m := widget()
		c.server.set(true)
		c.says("allowed", m, true, 5*time.Minute, 5)
		time.Sleep(time.Minute)
		subjects := bound("Group", "", "system:serviceaccounts:default")
		c.server.deliver("ADDED", "rolebindings", "2", "a", "b", subjects)
		c.wantTold("RBAC changed", 1)
		c.says("asked at once", m, true, 2*time.Second, 5)
		c.server.set(false)
		time.Sleep(time.Second)
		c.says("not trusted for long", m, true, time.Second, 0)
		time.Sleep(time.Second)
		c.says("asked again", m, false, time.Minute, 1)

		// A ClusterRole that a RoleBinding refers to, several changes together.
		time.Sleep(20 * time.Second)
		c.server.set(true)
		c.server.deliver("ADDED", "clusterroles", "3", "", "r", rules("get"))
		c.server.deliver("MODIFIED", "clusterroles", "4", "", "r", rules("list"))
		c.wantTold("RBAC changed", 1)
		c.says("asked at once", m, true, 2*time.Second, 5)
		time.Sleep(3 * time.Second)
		c.says("asked again", m, true, 5*time.Minute, 5)

		// What concerns others, or changes nothing.
		c.server.deliver("MODIFIED", "clusterroles", "5", "", "r", rules("list"))
		c.server.deliver("ADDED", "clusterroles", "6", "", "q", rules("list"))
		c.server.deliver("ADDED", "roles", "7", "a", "r", rules("list"))
		c.server.deliver("ADDED", "rolebindings", "8", "default", "other", bound("ServiceAccount", "", "executor2"))
		c.wantTold("RBAC changed", 0)
		c.says("kept", m, true, 5*time.Minute-100*time.Millisecond, 0)

		c.server.deliver("DELETED", "rolebindings", "9", "a", "b", subjects)
		c.wantTold("RBAC changed", 1)
	})
}

// TestAnswersForNewFollowers has RBAC change just before somebody follows the account that it
// concerns.
func TestAnswersForNewFollowers(t *testing.T) {
	inBubble(t, false, false, func(c *clock) {
		c.server.set(true)
		late := executor.Account{Namespace: "default", Name: "late"}
		c.server.deliver("ADDED", "rolebindings", "2", "default", "b", bound("ServiceAccount", "", "late"))
		synctest.Wait()
		c.checks.Follow("other", nil, &late)
		if recheck, err := c.checks.Check(c.Context(), late, widget()); err != nil || recheck != 2*time.Second {
			t.Errorf("again in %v, %v", recheck, err)
		}
		c.wantTold("RBAC changed", 0)
		c.says("another account", widget(), true, 5*time.Minute, 10)
	})
}

// TestInMemoryWithoutReviews answers from the RBAC objects that watches deliver.
func TestInMemoryWithoutReviews(t *testing.T) {
	inBubble(t, true, false, func(c *clock) {
		m := widget()
		c.says("denied", m, false, time.Minute, 0)
		widgets := func(verbs ...any) map[string]any {
			return map[string]any{"rules": []any{map[string]any{"verbs": verbs, "apiGroups": []any{"example.com"}, "resources": []any{"widgets"}}}}
		}
		c.server.deliver("ADDED", "clusterroles", "2", "", "r", widgets("*"))
		c.server.deliver("ADDED", "clusterrolebindings", "3", "", "b", bound("ServiceAccount", "default", "executor1"))
		c.wantTold("RBAC changed", 1)
		c.says("allowed", m, true, 0, 0)
		c.server.deliver("MODIFIED", "clusterroles", "4", "", "r", widgets("get", "list"))
		c.wantTold("RBAC changed", 1)
		c.says("denied", m, false, time.Minute, 0)
		c.server.deliver("MODIFIED", "clusterroles", "5", "", "r", rules("*"))
		c.told()
		binding := roleBinding("given", "x")
		c.says("a creation is tried", binding, true, 2*time.Second, 1)
		time.Sleep(3 * time.Second)
		c.says("once more", binding, true, 5*time.Minute, 1)
		time.Sleep(time.Minute)
		c.says("and kept", binding, true, 4*time.Minute, 0)
		c.says("for that content only", roleBinding("given", "y"), true, 5*time.Minute, 1)
		c.server.deliver("ADDED", "roles", "6", "a", "x", widgets("get"))
		c.wantTold("a role about to be bound changed", 1)
		c.says("asked again", binding, true, 2*time.Second, 1)
	})
}

// TestWhatAWatchMissed has a watch end, and changes that only the next list shows.
func TestWhatAWatchMissed(t *testing.T) {
	inBubble(t, true, false, func(c *clock) {
		all := rules("*")
		c.server.deliver("ADDED", "clusterroles", "101", "", "r", all)
		c.server.deliver("ADDED", "clusterrolebindings", "102", "", "b", bound("User", "", account.String()))
		c.told()
		c.says("allowed", widget(), true, 0, 0)
		c.server.expire("clusterroles")
		time.Sleep(time.Minute)
		c.wantTold("a role that went", 1)
		c.says("its role is gone", widget(), false, time.Minute, 0)
		all["name"] = "r"
		c.server.listed = map[string][]map[string]any{"clusterroles": {all}}
		c.server.expire("clusterroles")
		time.Sleep(time.Minute)
		c.wantTold("a role that came", 1)
		c.says("its role is back", widget(), true, 0, 0)
		c.server.expire("clusterrolebindings")
		time.Sleep(time.Minute)
		c.wantTold("a binding that went", 1)
		c.says("its binding is gone", widget(), false, time.Minute, 0)

		// While it may not be watched, the API server is asked.
		c.server.forbid(true)
		c.server.expire("roles")
		time.Sleep(time.Minute)
		c.server.set(true)
		c.says("reviewed", widget(), true, 5*time.Minute, 5)
		c.server.forbid(false)
		time.Sleep(2 * time.Minute)
		c.says("from memory again", widget(), false, time.Minute, 0)
	})
}

func roleBinding(name, role string) *strategy.Manifest {
	m := &strategy.Manifest{Owned: true, Ref: object.Ref{GroupVersionResource: mappings["RoleBinding"].Resource, Namespace: "a", Name: name}}
	m.Desired = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": map[string]any{"namespace": "a", "name": name},
		"roleRef": map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
	}}
	return m
}

// TestInMemoryWithoutWatches asks for reviews instead.
func TestInMemoryWithoutWatches(t *testing.T) {
	inBubble(t, true, true, func(c *clock) {
		c.server.set(true)
		c.says("asked", widget(), true, 5*time.Minute, 5)
		c.says("kept", widget(), true, 5*time.Minute, 0)
	})
}

// TestWatchesOnlyForFollowers ends the watches with the last follower, forgets its answers, and
// begins again.
func TestWatchesOnlyForFollowers(t *testing.T) {
	inBubble(t, false, false, func(c *clock) {
		c.server.set(true)
		c.says("asked", widget(), true, 5*time.Minute, 5)
		other := executor.Account{Namespace: "a", Name: "b"}
		c.checks.Follow("other", nil, &account)
		c.checks.Follow("work", &account, &other)
		c.says("kept for another follower", widget(), true, 5*time.Minute, 0)
		c.checks.Follow("other", &account, nil)
		c.checks.Follow("nobody", nil, nil)
		synctest.Wait()
		c.wantOpen("while somebody follows", 4)
		c.checks.Follow("work", &other, nil)
		synctest.Wait()
		c.wantOpen("left", 0)
		release := c.server.hold()
		c.checks.Follow("work", nil, &account)
		c.says("asked again", widget(), true, 5*time.Minute, 5)
		release()
		synctest.Wait()
		c.wantOpen("after the last Follow", 4)
		if n := c.told(); n == 0 {
			t.Error("not told that the answer is older than the watches")
		}
		c.says("asked again", widget(), true, 2*time.Second, 5)
	})
}

// TestManyAtOnce is for the race detector: works come and go, and ask, while RBAC changes. In the
// end every answer is that of the last RBAC.
func TestManyAtOnce(t *testing.T) {
	inBubble(t, true, false, func(c *clock) {
		accounts := []executor.Account{account, {Namespace: "default", Name: "executor2"}, {Namespace: "a", Name: "executor1"}}
		var workers sync.WaitGroup
		for i := range 8 {
			workers.Go(func() {
				key := fmt.Sprint("work", i)
				var before *executor.Account
				for n := range 200 {
					one := accounts[(i+n)%len(accounts)]
					c.checks.Follow(key, before, &one)
					before = &one
					for _, m := range []*strategy.Manifest{widget(), roleBinding("given", fmt.Sprint("r", n%3))} {
						if _, err := c.checks.Check(c.Context(), one, m); err != nil && !errors.As(err, new(*executor.DeniedError)) {
							t.Error(err)
						}
					}
					if n%5 == 0 {
						c.checks.Follow(key, before, nil)
						before = nil
					}
				}
			})
		}
		for n := range 100 {
			verb := "*"
			if n%2 == 0 {
				verb = "get"
			}
			version := strconv.Itoa(10 + 2*n)
			c.server.deliver("ADDED", "clusterroles", version, "", "r", rules(verb))
			c.server.deliver("ADDED", "rolebindings", strconv.Itoa(11+2*n), "a", fmt.Sprint("b", n%3), map[string]any{
				"roleRef":  map[string]any{"kind": "ClusterRole", "name": "r"},
				"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": accounts[n%3].Name}, map[string]any{"kind": "Group", "name": "system:serviceaccounts:default"}},
			})
			for len(c.changed) > 0 {
				<-c.changed
			}
		}
		workers.Wait()
		c.told()
		c.server.asked()
		for _, one := range accounts {
			if _, err := c.checks.Check(c.Context(), one, widget()); err != nil {
				t.Errorf("%s: %v", one, err)
			}
		}
		if n := c.server.asked(); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}
