package plane

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/deploy/policies"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/test/kit/procs"
)

// AddFinalizers installs the policy by which the API server adds the hub's finalizer to new works
// (deploy/policies/finalizers), and returns once it is in force. The namespace must exist.
func (p *Plane) AddFinalizers(ctx context.Context, namespace string) error {
	if err := install.Policies(ctx, p.REST(), policies.Finalizers()); err != nil {
		return err
	}
	client, err := versioned.NewForConfig(p.REST())
	if err != nil {
		return err
	}
	probe := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	probe.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{
		Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"probe","namespace":"default"}}`)}}}
	return procs.Poll(ctx, time.Minute, "the policy of finalizers is in force", func(ctx context.Context) error {
		made, err := client.WorkV1().ManifestWorks(namespace).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && len(made.Finalizers) == 0 {
			err = errors.New("it adds none")
		}
		return err
	})
}

// RemoveFinalizerPolicy removes what AddFinalizers has installed.
func (p *Plane) RemoveFinalizerPolicy(ctx context.Context) error {
	if err := install.RemovePolicies(ctx, p.REST(), policies.Finalizers()); err != nil {
		return fmt.Errorf("remove the policy of finalizers: %w", err)
	}
	return nil
}
