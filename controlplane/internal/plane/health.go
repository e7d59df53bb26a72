package plane

import (
	"context"
	"errors"
	"fmt"
	"os"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/workwire/workwire/controlplane/internal/credentials"
)

// Health returns nil if the control plane in dir is ready, else why it is not. It sends a request
// to the API server as the administrator.
func Health(ctx context.Context, dir string) error {
	files := layout{dir}
	if _, err := os.Stat(files.path(readyFile)); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the control plane in %s is not ready: it does not run or is still starting; see the logs in %s", dir, files.path("logs"))
	} else if err != nil {
		return fmt.Errorf("looking for the control plane in %s: %w", dir, err)
	}
	config, err := files.administrator()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	if err := serving(ctx, client); err != nil {
		return fmt.Errorf("the API server of the control plane in %s is not ready: %w", dir, err)
	}
	return nil
}

// readyFile exists while the control plane is ready, and after a kill until the next start.
const readyFile = "ready"

func (l layout) markReady() error { return credentials.WriteFile(l.path(readyFile), nil, 0o600) }

func (l layout) unmarkReady() {
	os.Remove(l.path(readyFile))
}

// administrator returns the client configuration of the administrator.
func (l layout) administrator() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", l.path("kubeconfig"))
	if err != nil {
		return nil, fmt.Errorf("reading back the kubeconfig: %w", err)
	}
	config.QPS = -1
	return config, nil
}
