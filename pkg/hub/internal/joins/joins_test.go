package joins

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/test/kit"
)

// TestDeletedRequests: nobody waits for a CertificateSigningRequest that somebody has deleted.
func TestDeletedRequests(t *testing.T) {
	j := &Joins{asked: map[string]asked{}}
	csr := func(name string) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for _, name := range []string{"seen", "missed", "stays"} {
		j.wait(name, asked{request: "request-of-" + name})
	}
	j.deleted(csr("seen"))
	j.deleted(cache.DeletedFinalStateUnknown{Obj: csr("missed")})
	if len(j.asked) != 1 || j.asked["stays"].request != "request-of-stays" {
		t.Errorf("waiting: %v", j.asked)
	}
}

// TestDeletedWhileRevoked: a cluster that is deleted as soon as it was revoked is put on the list nevertheless.
func TestDeletedWhileRevoked(t *testing.T) {
	j := &Joins{revised: make(chan struct{}, 1), cfg: Config{Source: "hub"}}
	text, _ := enrolment.Note(nil, enrolment.Issued{Source: "hub", Serial: "1", Expires: time.Now().Add(time.Hour)}, time.Now())
	cluster := func(name string) *clusterv1.ManagedCluster {
		return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.CertificatesAnnotationKey: text}}}
	}
	revoked := cluster("revoked")
	revoked.Annotations[v1alpha1.RevokedAnnotationKey] = "lost"
	j.changed(cluster("other"), nil)
	j.changed(revoked, nil)
	if len(j.gone) != 1 || j.gone[0].Name != "revoked" || !j.gone[0].Revoked || len(j.gone[0].Issued) != 1 {
		t.Errorf("to be put on the list: %v", j.gone)
	}
	if len(j.revised) == 0 {
		t.Error("the list is not looked at")
	}
}

// TestWhoWasNotTold: clusters that could not be told of an authority, since the hub was connecting, are told at the next look.
func TestWhoWasNotTold(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		last telling
		want bool
	}{
		"the first one":            {telling{}, true},
		"another one":              {telling{authority: "former", began: now, all: true}, true},
		"all were told":            {telling{authority: "new", began: now.Add(-authorityInterval), all: true}, false},
		"not all were told":        {telling{authority: "new", began: now.Add(-authorityInterval)}, true},
		"those who did not listen": {telling{authority: "new", began: now.Add(-renewInterval), all: true}, true},
	} {
		if got := c.last.due("new", now); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestReplacedUnanswered: the certificate of a device that was replaced stays revoked where the answer to that write is lost and the informer is
// behind; it is accepted again if nothing was written.
func TestReplacedUnanswered(t *testing.T) {
	const before, after = `"resourceVersion":"1","annotations":{"workwire.dev/device":"before","workwire.dev/certificates":%q}`, `"resourceVersion":"2","annotations":{"workwire.dev/device":"after"}`
	noted, _ := enrolment.Note(nil, enrolment.Issued{Source: "hub", Serial: "abc", Expires: time.Now().Add(time.Hour)}, time.Now())
	cluster := func(metadata string) string {
		return `{"kind":"ManagedCluster","apiVersion":"cluster.open-cluster-management.io/v1","metadata":{"name":"berlin","uid":"1",` + metadata + `}}`
	}
	first := cluster(fmt.Sprintf(before, noted))
	for name, stored := range map[string]struct {
		cluster string // empty: it is gone
		revoked bool
	}{
		"written":             {cluster(after), true},
		"not written":         {first, false},
		"deleted, and unseen": {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			var fails atomic.Bool
			var revocations atomic.Value
			revocations.Store("")
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				text := stored.cluster
				switch resource := path.Base(r.URL.Path); {
				case resource == "managedclusters":
					fmt.Fprintln(w, `{"type":"ADDED","object":`+first+`}`)
					fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"kind":"ManagedCluster","apiVersion":"cluster.open-cluster-management.io/v1","metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
					return
				case r.Method == http.MethodPatch:
					panic(http.ErrAbortHandler) // cuts the connection
				case resource == "berlin" && fails.Load():
					w.WriteHeader(http.StatusInternalServerError)
					return
				case r.Method == http.MethodPost, r.Method == http.MethodPut:
					body, _ := io.ReadAll(r.Body)
					revocations.Store(string(body))
					text = string(body)
				case resource == v1alpha1.RevocationsConfigMap:
					text = revocations.Load().(string)
				}
				if text == "" {
					w.WriteHeader(http.StatusNotFound)
					text = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
				}
				fmt.Fprint(w, text)
			}))
			t.Cleanup(server.Close)
			config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
			writer := versioned.NewForConfigOrDie(config)
			informers := controller.NewInformers(controller.InformersConfig{Client: writer})
			clusters := informers.ManagedClusters()
			kit.NoError(t, clusters.AddIndexers(cache.Indexers{revokedClusters: indexRevoked}))
			kit.Run(t, "informers", informers.Run)
			clusters.WaitForSync(t.Context())
			j := &Joins{
				cfg:     Config{Core: corev1client.NewForConfigOrDie(config), Writer: writer, Clusters: clusters, Namespace: "hub", Source: "hub"},
				revised: make(chan struct{}, 1), answering: make(chan struct{}), metrics: newMetrics(), unsure: map[string]bool{},
			}
			seen, _ := clusters.Latest(types.NamespacedName{Name: "berlin"})
			if err := j.remember(t.Context(), enrolment.Proven{DeviceHash: "another"}, seen, &enrolment.Grant{}); err == nil {
				t.Fatal("the write is answered")
			}
			is := func(revoked bool) {
				t.Helper()
				if text := revocations.Load().(string); strings.Contains(text, "abc") != revoked {
					t.Errorf("is the certificate to be revoked: %v; the ConfigMap is %s", revoked, text)
				}
			}
			fails.Store(true)
			if err := j.bringRevocations(t.Context()); err == nil {
				t.Error("the list is brought, and it is not known who is on it")
			}
			is(true)
			fails.Store(false)
			if err := j.bringRevocations(t.Context()); err != nil && stored.cluster != "" {
				t.Error(err)
			}
			is(stored.revoked)
		})
	}
}

// TestParse: a CertificateSigningRequest, which others may make too, is that of an agent or is refused.
func TestParse(t *testing.T) {
	key, err := enrolment.NewKey()
	kit.NoError(t, err)
	der, err := enrolment.NewCSR("berlin", key)
	kit.NoError(t, err)
	request := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	spec := func(request []byte, usages ...certificatesv1.KeyUsage) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{Request: request, Usages: usages}}
	}
	cluster, public, err := parse(spec(request, certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth))
	if err != nil || cluster != "berlin" || !public.Equal(&key.PublicKey) {
		t.Errorf("got %q, %v, %v", cluster, public, err)
	}
	for name, csr := range map[string]*certificatesv1.CertificateSigningRequest{
		"no PEM": spec(der), "no request": spec(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der[1:]})),
		"that of a server":     spec(request, certificatesv1.UsageClientAuth, certificatesv1.UsageServerAuth),
		"that of an authority": spec(request, certificatesv1.UsageCertSign),
	} {
		if _, _, err := parse(csr); err == nil {
			t.Errorf("%s: it is that of an agent", name)
		}
	}
}
