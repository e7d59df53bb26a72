package agent_test

import (
	"strings"
	"testing"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

// TestMissingDefinition starts an agent before the CRDs of its cluster are installed.
func TestMissingDefinition(t *testing.T) {
	bare := controlplane.StartFor(t, controlplane.Hub)
	const file = "deploy/crds/work.open-cluster-management.io_appliedmanifestworks.yaml"
	a := newWorld(t).StartAgent(0, func(c *agent.Config) { c.Kube = bare.REST() })
	a.Log.Await(t, "level=ERROR .*resource=appliedmanifestworks .*advice=.*"+file)
	if err := a.Ready(); err == nil || !strings.Contains(err.Error(), "not known yet: ") || !strings.Contains(err.Error(), file) {
		t.Errorf("not ready because of %v, want %s in it", err, file)
	}
	kit.NoError(t, install.CRDs(t.Context(), bare.REST(), crds.Spoke()...))
	kit.Eventually(t, "the agent is ready", a.Ready)
}
