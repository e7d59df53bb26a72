package test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// TestEnvtest lets controller-runtime's envtest start etcd and kube-apiserver from a folder of
// links to the binary.
func TestEnvtest(t *testing.T) {
	t.Parallel()
	assets := filepath.Join(t.TempDir(), "assets")
	for range 2 { // links of an earlier call are replaced
		if out, err := exec.Command(binary, "assets", "--dir="+assets).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	ctrllog.SetLogger(logr.Discard()) // the test says what went wrong
	environment := &envtest.Environment{BinaryAssetsDirectory: assets, ControlPlaneStartTimeout: patience}
	config, err := environment.Start()
	noError(t, err)
	defer func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	}()
	client, err := kubernetes.NewForConfig(config)
	noError(t, err)
	if _, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}
