package joins

import (
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/security/enrolment"
)

// TestDeletedRequests: nobody waits for a CertificateSigningRequest that somebody has deleted.
func TestDeletedRequests(t *testing.T) {
	j := &Joins{asked: map[string]asked{}}
	csr := func(name string) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for _, name := range []string{"seen", "missed", "stays"} {
		j.wait(name, asked{request: enrolment.Proven{Request: enrolment.Request{ID: "request-of-" + name}}})
	}
	j.deleted(csr("seen"))
	j.deleted(cache.DeletedFinalStateUnknown{Obj: csr("missed")})
	if len(j.asked) != 1 || j.asked["stays"].request.ID != "request-of-stays" {
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
