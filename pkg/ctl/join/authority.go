package join

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/security/enrolment"
)

// Behind returns the clusters that joined with a token and whose certificate is valid, and of another authority than the one with a key
// id, sorted; and how many clusters have a valid certificate. Clusters that are revoked do not count.
func Behind(ctx context.Context, clients versioned.Interface, authority string, now time.Time) (behind []string, all int, err error) {
	list, err := clients.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, 0, err
	}
	for _, cluster := range list.Items {
		issued := enrolment.ParseIssued(cluster.Annotations[v1alpha1.CertificatesAnnotationKey])
		if _, revoked := cluster.Annotations[v1alpha1.RevokedAnnotationKey]; revoked || len(enrolment.Unexpired(issued, now)) == 0 {
			continue
		}
		all++
		if enrolment.Behind(issued, authority, now) {
			behind = append(behind, cluster.Name)
		}
	}
	slices.Sort(behind)
	return behind, all, nil
}
