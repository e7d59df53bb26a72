// Package controlplane starts real Kubernetes API servers for tests: the project's
// bin/controlplane, as a process in a temporary directory.
//
//	var plane *controlplane.Plane
//
//	func TestMain(m *testing.M) {
//		controlplane.MainShared(m, controlplane.Hub, func(p *controlplane.Plane) error {
//			plane = p
//			return install.CRDs(context.Background(), p.REST(), crds.Hub()...)
//		})
//	}
//
// One control plane serves all tests of a package; they keep apart by namespace, see
// [Plane.Namespace]. [MainShared] uses a control plane that several packages share, if there is
// one, also while they run side by side. hack/with-planes.sh starts one of each [Role] for a
// command and sets WORKWIRE_TEST_HUB_KUBECONFIG and WORKWIRE_TEST_SPOKE_KUBECONFIG to the paths of
// their kubeconfigs:
//
//	hack/with-planes.sh go test ./pkg/runtime/leader ./pkg/agent/internal/applied
//
// A package needs a control plane of its own, from [Main], [MainPair] or [Start], when its tests
// count the requests or objects of the whole cluster, change cluster-scoped objects that others
// use, run controllers of all namespaces, or stop the API server. make test does not share:
// starting one costs 2 to 3 CPU seconds, and the go command caches no results of tests that run on
// a shared one.
package controlplane

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

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

	config *rest.Config
	role   Role
	// datastore is the URL of a database without a password, empty for etcd.
	datastore string
	dir       string
	process   *process.Process // nil for a shared control plane
}

// Main runs the tests of a package with a control plane of its own and ends the process. setup is
// called before the tests and may be nil.
func Main(m *testing.M, role Role, setup func(*Plane) error) {
	os.Exit(run(m, Start, []Role{role}, first(setup)))
}

// MainShared is like Main with the control plane of the test run, if there is one. setup must be
// safe to call in several packages at a time.
func MainShared(m *testing.M, role Role, setup func(*Plane) error) {
	os.Exit(run(m, Shared, []Role{role}, first(setup)))
}

// MainPair runs the tests of a package with a hub and a spoke control plane of its own and ends the
// process. setup is called before the tests. It returns a function that is called after them, which
// may be nil.
func MainPair(m *testing.M, setup func(hub, spoke *Plane) (teardown func() error, err error)) {
	os.Exit(run(m, Start, []Role{Hub, Spoke}, func(planes []*Plane) (func() error, error) {
		return setup(planes[0], planes[1])
	}))
}

// first returns a setup of several control planes that calls the setup of one.
func first(setup func(*Plane) error) func([]*Plane) (func() error, error) {
	return func(planes []*Plane) (func() error, error) {
		if setup == nil {
			return nil, nil
		}
		return nil, setup(planes[0])
	}
}

func run(m *testing.M, start func(Role) (*Plane, error), roles []Role, setup func([]*Plane) (func() error, error)) (code int) {
	if flag.Parse(); leftOut() {
		return m.Run() // without a setup: the package's planes stay nil
	}
	planes := make([]*Plane, len(roles))
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	defer func() {
		for _, plane := range planes {
			if plane != nil {
				fail(plane.Stop())
			}
		}
	}()
	var starting errgroup.Group
	for i, role := range roles {
		starting.Go(func() (err error) {
			planes[i], err = start(role)
			return err
		})
	}
	if err := starting.Wait(); err != nil {
		fail(err)
		return code
	}
	teardown, err := setup(planes)
	if teardown != nil {
		defer func() { fail(teardown()) }()
	}
	if err != nil {
		fail(fmt.Errorf("set up the control plane: %w", err))
		return code
	}
	return m.Run()
}

// Shared returns the control plane of the test run, or starts one if there is none. Stop must be
// called.
func Shared(role Role) (*Plane, error) {
	kubeconfig := os.Getenv("WORKWIRE_TEST_" + strings.ToUpper(string(role)) + "_KUBECONFIG")
	if kubeconfig == "" {
		return Start(role)
	}
	p := &Plane{Kubeconfig: kubeconfig}
	return p, p.connect()
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
func Start(role Role) (*Plane, error) { return StartOn(role, "") }

// StartOnFor is like StartFor with the data in a PostgreSQL database, whose URL has no password.
func StartOnFor(t testing.TB, role Role, datastore string) *Plane {
	t.Helper()
	p, err := StartOn(role, datastore)
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

// StartOn is like Start with the data in a PostgreSQL database, whose URL has no password; "" is etcd.
func StartOn(role Role, datastore string) (*Plane, error) {
	dir, err := os.MkdirTemp("", "workwire-"+string(role)+"-")
	if err != nil {
		return nil, fmt.Errorf("controlplane: %w", err)
	}
	p := &Plane{dir: dir, role: role, datastore: datastore, Kubeconfig: filepath.Join(dir, "kubeconfig")}
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

// Stop ends the control plane and removes its files, unless it is shared. It must be called once.
func (p *Plane) Stop() error {
	if p.process == nil {
		return nil
	}
	err := errors.Join(p.process.Stop(), p.process.Wait())
	if err != nil {
		err = fmt.Errorf("controlplane: the control plane in %s did not stop clean: %w", p.dir, err)
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// leftOut reports whether this run starts no control planes. Fuzzing starts workers, each of which
// runs TestMain.
func leftOut() bool {
	return flag.Lookup("test.fuzz").Value.String() != ""
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

// CreateNamespace creates a namespace of this name, for tests that need it, and returns the name.
func (p *Plane) CreateNamespace(t testing.TB, name string) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(p.REST())
	if err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
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
