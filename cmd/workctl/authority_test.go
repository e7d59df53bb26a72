package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/test/kit"
)

// TestRotateAuthorityAsks: with a hub, a replacement says which clusters are behind, and does not end before they have renewed unless it is forced.
func TestRotateAuthorityAsks(t *testing.T) {
	f := newFixture(t)
	path := writeList(t)
	rotate := func(args ...string) (string, error) {
		t.Helper()
		return run(t.Context(), t, append([]string{"certs", "rotate-authority", "--config=" + path, "--kubeconfig=" + plane.Kubeconfig}, args...)...)
	}
	issued := func() {
		t.Helper()
		config, err := certificates.Load(path)
		kit.NoError(t, err)
		manager, err := certificates.New(certificates.ManagerConfig{Config: config, Dir: filepath.Dir(path)})
		kit.NoError(t, err)
		status, err := manager.Status()
		kit.NoError(t, err)
		text, _ := enrolment.Note(nil, enrolment.Issued{Serial: "1", Authority: status.Authorities[0].KeyID, Expires: time.Now().Add(time.Hour)}, time.Now())
		value, err := json.Marshal(text)
		kit.NoError(t, err)
		_, err = f.clients.ClusterV1().ManagedClusters().Patch(t.Context(), f.cluster, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, v1alpha1.CertificatesAnnotationKey, value), metav1.PatchOptions{})
		kit.NoError(t, err)
	}
	_, err := run(t.Context(), t, "certs", "ensure", "--config="+path)
	kit.NoError(t, err)
	for replacement, force := range []string{"--force=false", "--force"} {
		issued()
		for _, step := range []string{"--step=trust", "--step=issue"} {
			out, err := rotate(step)
			kit.NoError(t, err)
			if behind := strings.Contains(out, "not yet: "+f.cluster); behind != (step == "--step=issue") {
				t.Errorf("%s: behind is %v:\n%s", step, behind, out)
			}
		}
		if _, err := rotate("--step=drop"); err == nil || !strings.Contains(err.Error(), "1 cluster has not renewed its certificate") {
			t.Errorf("too early: %v", err)
		}
		if replacement == 0 {
			issued()
		}
		if out, err := rotate("--step=drop", force); err != nil || !strings.Contains(out, "is no longer trusted") {
			t.Errorf("%s: %v\n%s", force, err, out)
		}
	}
}
