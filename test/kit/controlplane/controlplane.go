// Package controlplane starts real Kubernetes API servers for tests: the project's
// bin/controlplane, as a process in a temporary directory.
//
//	var plane *controlplane.Plane
//
//	func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane}) }
//
// One control plane serves all tests of a package; they keep apart by namespace, see
// [Plane.Namespace]. A test that stops the API server, or counts what the whole of it has, starts its own with
// [StartFor]. Starting and stopping one costs 6 to 8 CPU seconds.
package controlplane

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/process"
)

// Role is the kind of a control plane.
type Role string

// Roles: an API server without pods, and a whole cluster with simulated nodes.
const (
	Hub   Role = "hub"
	Spoke Role = "spoke"
)

const startTimeout = 5 * time.Minute

// Plane is a running control plane. Its methods may be called from any goroutine.
type Plane struct {
	// Kubeconfig is the path of the administrator's.
	Kubeconfig string

	// binary is the path of the program controlplane.
	binary string
	config *rest.Config
	role   Role
	// datastore is the URL of a database, empty for etcd.
	datastore string
	dir       string
	process   *process.Process
}

// Planes are the control planes that the tests of a package share.
type Planes struct {
	// Hub and Spoke say which roles are started, and where the control planes are stored before the
	// tests. A hub has all custom resources, so that it does as the cluster of an agent too, a spoke
	// those of agents. A spoke costs nearly twice as much as a hub: only Deployments, Jobs and pods need one.
	Hub, Spoke **Plane
	// Bare leaves out the custom resources.
	Bare bool
	// Setup is called before the tests, unless it is nil. It returns a function that is called after
	// them, which may be nil.
	Setup func() (teardown func() error, err error)
}

// Main runs the tests of a package with control planes and ends the process.
func Main(m *testing.M, p Planes) {
	code, err := p.run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func (p Planes) run(m *testing.M) (code int, err error) {
	if flag.Parse(); leftOut() {
		return m.Run(), nil // the package's planes stay nil
	}
	defer func() {
		for _, plane := range []**Plane{p.Hub, p.Spoke} {
			if plane != nil && *plane != nil {
				err = errors.Join(err, (*plane).Stop())
			}
		}
	}()
	var starting errgroup.Group
	starting.Go(func() error { return p.start(p.Hub, Hub, append(crds.Hub(), crds.Spoke()...)) })
	starting.Go(func() error { return p.start(p.Spoke, Spoke, crds.Spoke()) })
	if err := starting.Wait(); err != nil {
		return 0, fmt.Errorf("set up the control planes: %w", err)
	}
	if p.Setup != nil {
		teardown, failed := p.Setup()
		if teardown != nil {
			defer func() { err = errors.Join(err, teardown()) }()
		}
		if failed != nil {
			return 0, fmt.Errorf("set up the tests: %w", failed)
		}
	}
	return m.Run(), nil
}

// start starts a control plane with definitions, unless none is wanted.
func (p Planes) start(plane **Plane, role Role, definitions []*apiextensionsv1.CustomResourceDefinition) (err error) {
	if plane == nil {
		return nil
	}
	if *plane, err = Start(role); err != nil || p.Bare {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return install.CRDs(ctx, (*plane).REST(), definitions...)
}

// connect reads the kubeconfig.
func (p *Plane) connect() (err error) {
	if p.config, err = clientcmd.BuildConfigFromFlags("", p.Kubeconfig); err != nil {
		return fmt.Errorf("controlplane: %w", err)
	}
	p.config.QPS = -1
	return nil
}

// Start starts a control plane in a new temporary directory and returns when it is ready. Stop must
// be called.
func Start(role Role) (*Plane, error) { return StartOn("", role, "") }

// StartOnFor is like StartFor with the data in the PostgreSQL database of a URL.
func StartOnFor(t testing.TB, role Role, datastore string) *Plane {
	t.Helper()
	p, err := StartOn("", role, datastore)
	kit.NoError(t, err)
	p.stopAfter(t)
	return p
}

func (p *Plane) stopAfter(t testing.TB) {
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// StartOn is like Start with another binary than bin/controlplane of a directory above, unless it is "", and with the data in the
// PostgreSQL database of a URL; "" is etcd.
func StartOn(binary string, role Role, datastore string) (*Plane, error) {
	if binary == "" {
		var err error
		if binary, err = find(); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "workwire-"+string(role)+"-")
	if err != nil {
		return nil, fmt.Errorf("controlplane: %w", err)
	}
	p := &Plane{binary: binary, dir: dir, role: role, datastore: datastore, Kubeconfig: filepath.Join(dir, "kubeconfig")}
	if err := p.start(); err != nil {
		return nil, errors.Join(err, p.process.Stop(), os.RemoveAll(dir))
	}
	return p, nil
}

// StartFor starts a control plane that ends with the test.
func StartFor(t testing.TB, role Role) *Plane {
	t.Helper()
	p, err := Start(role)
	kit.NoError(t, err)
	p.stopAfter(t)
	return p
}

// Stop ends the control plane and removes its files. It must be called once.
func (p *Plane) Stop() error {
	err := errors.Join(p.process.Stop(), p.process.Wait())
	if err != nil {
		err = fmt.Errorf("controlplane: the control plane in %s did not stop clean: %w", p.dir, err)
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// leftOut reports whether this run starts no control planes: go test -short, with -run for tests that need none. Fuzzing
// starts workers, each of which runs TestMain.
func leftOut() bool {
	return testing.Short() || flag.Lookup("test.fuzz").Value.String() != ""
}

// REST returns a new client configuration of the administrator, without a rate limit.
func (p *Plane) REST() *rest.Config {
	return rest.CopyConfig(p.config)
}

// Namespace creates a namespace for a test, named by prefix and a random suffix, and returns its
// name. It lasts as long as the control plane.
func (p *Plane) Namespace(t testing.TB, prefix string) string {
	t.Helper()
	return p.CreateNamespace(t, kit.Unique(prefix))
}

// CreateNamespace creates a namespace of this name unless it exists, for tests that need it, and returns
// the name.
func (p *Plane) CreateNamespace(t testing.TB, name string) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(p.REST())
	if err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err = client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("create namespace %s: %v", name, err)
	}
	return name
}

// find looks for bin/controlplane in the directories above the test's.
func find() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("controlplane: %w", err)
	}
	for {
		binary := filepath.Join(dir, "bin", "controlplane")
		if _, err := os.Stat(binary); err == nil {
			return binary, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", errors.New("controlplane: no bin/controlplane in the directories above: run make build")
		}
		dir = above
	}
}
