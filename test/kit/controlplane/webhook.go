package controlplane

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/test/kit"
)

// Webhook has the API server ask respond before it writes or deletes a ConfigMap in a namespace, until the test ends: those
// with a label, or all if label is empty. respond has to refuse to create the ConfigMap "probe", by which Webhook knows that it is
// asked.
func (p *Plane) Webhook(t testing.TB, namespace, label string, respond func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		switch err := json.NewDecoder(r.Body).Decode(&review); {
		case errors.Is(err, io.ErrUnexpectedEOF): // the API server has given up
			return
		case err != nil:
			t.Error(err)
			return
		}
		review.Response = respond(r.Context(), review.Request)
		review.Response.UID = review.Request.UID
		_ = json.NewEncoder(rw).Encode(review)
	}))
	t.Cleanup(server.Close)
	selector, labels := &metav1.LabelSelector{}, map[string]string{}
	if label != "" {
		selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: label, Operator: metav1.LabelSelectorOpExists}}
		labels[label] = "probe"
	}
	none, fail, seconds := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail, int32(10)
	name := "webhook-" + namespace
	client := kubernetes.NewForConfigOrDie(p.REST())
	webhooks := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := webhooks.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: name + ".example.com", SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: &seconds,
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			ObjectSelector:    selector,
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}, metav1.CreateOptions{})
	kit.NoError(t, err)
	t.Cleanup(func() { _ = webhooks.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	// The API server learns of it a moment later.
	kit.Eventually(t, "the webhook is asked", func() error {
		_, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe", Labels: labels}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("it is not")
		}
		return nil
	})
}
