package joins

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// TestDeletedRequests: nobody waits for a CertificateSigningRequest that somebody has deleted.
func TestDeletedRequests(t *testing.T) {
	j := &Joins{asked: map[string]string{}}
	csr := func(name string) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for _, name := range []string{"seen", "missed", "stays"} {
		j.wait(name, "request-of-"+name)
	}
	j.deleted(csr("seen"))
	j.deleted(cache.DeletedFinalStateUnknown{Obj: csr("missed")})
	if len(j.asked) != 1 || j.asked["stays"] != "request-of-stays" {
		t.Errorf("waiting: %v", j.asked)
	}
}
