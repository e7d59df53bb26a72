package agent_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	flowv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// TestBusyAPIServer: the API server admits few writes of the agent at a time and refuses the others
// with
// 429. That slows the agent down; no work is lost or reported as failed.
func TestBusyAPIServer(t *testing.T) {
	w := newWorld(t)
	works := w.source("hub1")
	user := "agent-of-" + w.namespace
	w.grant(user, "all", []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}})
	w.narrow(user)
	var refused atomic.Bool
	plane.Webhook(w, w.namespace, "busy", func(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		// Writes take until one is refused, but not as long as the webhook's timeout.
		for start := time.Now(); request.Name != "probe" && !refused.Load() && ctx.Err() == nil && time.Since(start) < 5*time.Second; {
			time.Sleep(10 * time.Millisecond)
		}
		return &admissionv1.AdmissionResponse{Allowed: request.Name != "probe", Result: &metav1.Status{Message: "the test refuses it"}}
	})
	w.agent(func(c *agent.Config) { c.Kube.Impersonate = rest.ImpersonationConfig{UserName: user} })
	changes, err := works.Watch(w.Context(), metav1.ListOptions{})
	kit.NoError(t, err)
	defer changes.Stop()

	const many = 10
	busy := func(name string) string {
		return strings.Replace(configMap(name, "1"), "namespace:", "labels: {busy: x}, namespace:", 1)
	}
	for i := range many {
		w.Create(works, w.work(fmt.Sprintf("busy-%d", i), busy(fmt.Sprintf("busy-%d-a", i)), busy(fmt.Sprintf("busy-%d-b", i))))
	}
	kit.True(t, "the API server refuses a write", func() bool { return w.refused(user) > 0 })
	refused.Store(true)
	applied := map[string]bool{}
	for len(applied) < many {
		var work *workv1.ManifestWork
		select {
		case event := <-changes.ResultChan():
			work = event.Object.(*workv1.ManifestWork)
		case <-time.After(kit.Patience):
			t.Fatalf("only %v are applied", applied)
		}
		switch c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied); {
		case c == nil:
		case c.Status == metav1.ConditionTrue:
			applied[work.Name] = true
		default:
			t.Errorf("%s: %s", work.Name, c.Message)
		}
	}
	for i := range many {
		w.data(fmt.Sprintf("busy-%d-b", i), "1")
	}
}

// narrow limits the concurrent writes of a user, without a queue, until the test ends.
func (w *fixture) narrow(user string) {
	w.Helper()
	flows := w.cluster.FlowcontrolV1()
	one, none := int32(1), int32(0)
	_, err := flows.PriorityLevelConfigurations().Create(w.Context(), &flowv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Spec: flowv1.PriorityLevelConfigurationSpec{Type: flowv1.PriorityLevelEnablementLimited, Limited: &flowv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: &one, BorrowingLimitPercent: &none,
			LimitResponse: flowv1.LimitResponse{Type: flowv1.LimitResponseTypeReject},
		}},
	}, metav1.CreateOptions{})
	kit.NoError(w, err)
	_, err = flows.FlowSchemas().Create(w.Context(), &flowv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Spec: flowv1.FlowSchemaSpec{
			MatchingPrecedence:         1000,
			PriorityLevelConfiguration: flowv1.PriorityLevelConfigurationReference{Name: user},
			Rules: []flowv1.PolicyRulesWithSubjects{{
				Subjects: []flowv1.Subject{{Kind: flowv1.SubjectKindUser, User: &flowv1.UserSubject{Name: user}}},
				ResourceRules: []flowv1.ResourcePolicyRule{{
					Verbs: []string{"create", "update", "patch"}, APIGroups: []string{"*"}, Resources: []string{"*"}, ClusterScope: true, Namespaces: []string{"*"},
				}},
			}},
		},
	}, metav1.CreateOptions{})
	kit.NoError(w, err)
	w.Cleanup(func() {
		for _, err := range []error{
			flows.FlowSchemas().Delete(context.Background(), user, metav1.DeleteOptions{}),
			flows.PriorityLevelConfigurations().Delete(context.Background(), user, metav1.DeleteOptions{}),
		} {
			if err != nil && !apierrors.IsNotFound(err) {
				w.Error(err)
			}
		}
	})
	kit.Eventually(w, "the flow schema is in force", func() error {
		text, err := w.cluster.Discovery().RESTClient().Get().AbsPath("/debug/api_priority_and_fairness/dump_priority_levels").DoRaw(w.Context())
		if err == nil && !strings.Contains(string(text), user) {
			err = fmt.Errorf("%s", text)
		}
		return err
	})
}

// refused returns how many requests of a user the API server has refused.
func (w *fixture) refused(user string) (count int) {
	w.Helper()
	text, err := w.cluster.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(w.Context())
	kit.NoError(w, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "apiserver_flowcontrol_rejected_requests_total{") && strings.Contains(line, `flow_schema="`+user+`"`) {
			var n int
			if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &n); err != nil {
				w.Fatal(err)
			}
			count += n
		}
	}
	return count
}
