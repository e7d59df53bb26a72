package executor_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
)

// user returns whom a client makes requests as; empty: the agent.
func user(t *testing.T, client rest.Interface) string {
	t.Helper()
	name, err := client.Get().AbsPath("/whoami").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Trim(string(name), "\"")
}

// impersonates checks whether the agent impersonates, and what it cost to know.
func (c *clock) impersonates(when string, want bool, requests int) {
	c.Helper()
	client, err := c.checks.Client(c.Context(), account)
	if err != nil {
		c.Fatal(err)
	}
	as := ""
	if want {
		as = account.String()
	}
	if got := user(c.T, client); got != as {
		c.Errorf("%s: requests are made as %q, want %q", when, got, as)
	}
	if asked := c.server.askedSelf(); asked != requests {
		c.Errorf("%s: %d requests, want %d", when, asked, requests)
	}
}

// TestImpersonationIsAskedAgain goes through the times after which it is.
func TestImpersonationIsAskedAgain(t *testing.T) {
	inBubble(t, false, false, func(c *clock) {
		c.impersonates("at first", true, 1)
		c.impersonates("soon", true, 0)
		c.server.forbidImpersonation(true)
		c.impersonates("while it is remembered", true, 0)
		time.Sleep(5 * time.Minute)
		c.impersonates("after 5 minutes", false, 1)
		c.server.forbidImpersonation(false)
		c.impersonates("while the denial is remembered", false, 0)
		time.Sleep(time.Minute)
		c.impersonates("after a minute", true, 1)
		refused := apierrors.NewForbidden(rbacv1.Resource("serviceaccounts"), "executor1", errors.New(`User "agent" cannot impersonate resource "serviceaccounts"`))
		if err := c.checks.Refused(account, object.Ref{}, refused); !errors.Is(err, refused) || !strings.HasSuffix(err.Error(), "give the agent the verb impersonate on serviceaccounts") {
			c.Errorf("the error is %v", err)
		}
		c.impersonates("after a request was refused", true, 1)
	})
}

// TestRefused says which errors of writes are denials.
func TestRefused(t *testing.T) {
	inBubble(t, false, false, func(c *clock) {
		role := object.Ref{GroupVersionResource: rbacv1.SchemeGroupVersion.WithResource("roles"), Name: "r"}
		config := object.Ref{Name: "c"}
		escalation := apierrors.NewForbidden(rbacv1.Resource("roles"), "r", errors.New(`user "x" (groups=[]) is attempting to grant RBAC permissions not currently held: secret`))
		aggregation := apierrors.NewForbidden(rbacv1.Resource("clusterroles"), "r", errors.New("must have cluster-admin privileges to use the aggregationRule"))
		policy := apierrors.NewForbidden(rbacv1.Resource("roles"), "r", errors.New("ValidatingAdmissionPolicy 'p' denied request: no"))
		for name, test := range map[string]struct {
			ref    object.Ref
			err    error
			denied bool
		}{
			"an escalation":        {role, escalation, true},
			"an aggregation":       {role, aggregation, true},
			"a policy's refusal":   {role, policy, false},
			"of another kind":      {config, escalation, false},
			"a conflict":           {role, apierrors.NewConflict(rbacv1.Resource("roles"), "r", nil), false},
			"what is denied as is": {role, &executor.DeniedError{Verb: "get"}, true},
			"nothing":              {role, nil, false},
		} {
			got := c.checks.Refused(account, test.ref, test.err)
			var denied *executor.DeniedError
			if errors.As(got, &denied) != test.denied || !test.denied && !errors.Is(got, test.err) {
				c.Errorf("%s: %v", name, got)
			}
		}
		if got := c.checks.Refused(account, role, escalation).Error(); got != "not allowed to apply the resource rbac.authorization.k8s.io roles,  r, error: permission escalation, will try again in 1m0s" {
			c.Errorf("it says %q", got)
		}
	})
}

// TestWhatOnlyTheAPIServerCanCheck: what may grant rights is written as the executor, also by an agent that may not impersonate it,
// which the API server then refuses.
func TestWhatOnlyTheAPIServerCanCheck(t *testing.T) {
	inBubble(t, false, false, func(c *clock) {
		for ref, grants := range map[object.Ref]bool{
			reference("", "configmaps"):                             false,
			reference(rbacv1.GroupName, "others"):                   false,
			reference(rbacv1.GroupName, "roles"):                    true,
			reference(rbacv1.GroupName, "rolebindings"):             true,
			reference(rbacv1.GroupName, "clusterroles"):             true,
			reference(rbacv1.GroupName, "clusterrolebindings"):      true,
			reference("authorization.openshift.io", "rolebindings"): true,
		} {
			for _, forbidden := range []bool{false, true} {
				c.server.forbidImpersonation(forbidden)
				time.Sleep(6 * time.Minute)
				clients, err := c.checks.Clients(c.Context(), account, &strategy.Manifest{Ref: ref})
				if err != nil {
					c.Fatal(err)
				}
				if written := clients.Client != nil && user(c.T, clients.Client) == account.String(); written != (grants || !forbidden) {
					c.Errorf("%s, impersonation forbidden %t: written as the executor %t", ref, forbidden, written)
				}
				if (clients.Creator != nil) != (!grants && !forbidden) {
					c.Errorf("%s, impersonation forbidden %t: %+v", ref, forbidden, clients)
				}
			}
		}
	})
}

func reference(group, resource string) object.Ref {
	ref := object.Ref{Namespace: "default", Name: "r"}
	ref.Group, ref.Version, ref.Resource = group, "v1", resource
	return ref
}

// TestReadsAreAskedOnce counts the requests for reading and writing.
func TestReadsAreAskedOnce(t *testing.T) {
	inBubble(t, false, false, func(c *clock) {
		m := manifest(t, "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: c}}", nil)
		read := func(when string, allowed bool, recheck time.Duration, requests int) {
			t.Helper()
			got, err := c.checks.MayRead(c.Context(), account, m.Ref)
			if asked := c.server.asked(); (err == nil) != allowed || got != recheck || asked != requests {
				c.Errorf("%s: %v, again in %v, %d requests; want allowed %t, again in %v, %d requests", when, err, got, asked, allowed, recheck, requests)
			}
		}
		read("denied", false, time.Minute, 1)
		read("denied again", false, time.Minute, 0)
		c.server.set(true)
		time.Sleep(time.Minute)
		read("allowed", true, 0, 1)
		c.says("to write", m, true, 5*time.Minute, 4)
		read("still", true, 0, 0)
		c.server.set(false)
		c.server.deliver("ADDED", "rolebindings", "200", "default", "b", bound("ServiceAccount", account.Namespace, account.Name))
		c.wantTold("a change of rights", 1)
		read("just changed", false, 2*time.Second, 1)
	})
}
