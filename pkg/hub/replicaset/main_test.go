package replicaset

import (
	"context"
	"testing"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/pkg/kube/kubetest"
)

var plane *kubetest.Plane

func TestMain(m *testing.M) {
	kubetest.Main(m, kubetest.Hub, func(p *kubetest.Plane) error {
		plane = p
		return crds.Install(context.Background(), p.REST(), crds.Hub()...)
	})
}
