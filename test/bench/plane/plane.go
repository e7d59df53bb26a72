// Package plane starts the control plane of a benchmark, a real API server, and counts the requests
// of one user. The API server counts them, so that any program can be measured: the user has its
// own flow schemas (API priority and fairness), one for each class of requests, and the API
// server's metrics count requests by flow schema. Their priority level is "exempt", as that of the
// administrator who runs the baseline, so that no request is queued.
package plane

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/procs"
)

// User is the name of the measured program at the API server.
const User = "bench-measured"

// Plane is a running control plane.
type Plane struct {
	// Kubeconfig is the path of the measured program's kubeconfig.
	Kubeconfig string
	// Client is the administrator's, without a rate limit.
	Client kubernetes.Interface

	plane *controlplane.Plane
}

// Start starts a control plane of binary with the definitions for its role, with its data in a PostgreSQL
// database, or in etcd if datastore is "".
func Start(ctx context.Context, dir, binary string, role controlplane.Role, datastore string) (*Plane, error) {
	started, err := controlplane.StartOn(binary, role, datastore)
	if err != nil {
		return nil, err
	}
	p := &Plane{plane: started, Kubeconfig: filepath.Join(dir, string(role)+".kubeconfig")}
	if err := p.setUp(ctx, binary, role); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (p *Plane) setUp(ctx context.Context, binary string, role controlplane.Role) (err error) {
	if p.Client, err = kubernetes.NewForConfig(p.REST()); err != nil {
		return err
	}
	definitions := crds.Spoke()
	if role == controlplane.Hub {
		definitions = crds.Hub()
	}
	if err := install.CRDs(ctx, p.REST(), definitions...); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, binary, "kubeconfig", "--dir="+filepath.Dir(p.plane.Kubeconfig),
		"--user="+User, "--output="+p.Kubeconfig).CombinedOutput()
	if err != nil {
		return fmt.Errorf("make a user of the control plane: %w: %s", err, out)
	}
	return p.classify(ctx)
}

// REST returns the administrator's configuration, without a rate limit.
func (p *Plane) REST() *rest.Config { return p.plane.REST() }

// Stop ends the control plane.
func (p *Plane) Stop() error { return p.plane.Stop() }

// Usage returns what the control plane uses: etcd, API server and controllers.
func (p *Plane) Usage() procs.Usage { return procs.Below(filepath.Dir(p.plane.Kubeconfig)) }

// Uses returns what one program of the control plane uses: etcd, hub-apiserver, kube-apiserver.
func (p *Plane) Uses(program string) procs.Usage {
	return procs.Program(filepath.Dir(p.plane.Kubeconfig), program)
}

// Namespace creates a namespace unless it exists.
func (p *Plane) Namespace(ctx context.Context, name string) error {
	_, err := p.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// The classes of requests, in the order in which they are matched: flow schemas of one precedence
// are ordered by name.
const (
	leases  = "bench-0-leases"
	watches = "bench-1-watches"
	others  = "bench-2-others"
)

func (p *Plane) classify(ctx context.Context) error {
	_, err := p.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: User},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: User, APIGroup: rbacv1.GroupName}},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "cluster-admin", APIGroup: rbacv1.GroupName},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("give %s its rights: %w", User, err)
	}
	everything := []string{"*"}
	for name, rule := range map[string]flowv1.ResourcePolicyRule{
		leases:  {Verbs: everything, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}},
		watches: {Verbs: []string{"watch"}, APIGroups: everything, Resources: everything},
		others:  {Verbs: everything, APIGroups: everything, Resources: everything},
	} {
		rule.ClusterScope, rule.Namespaces = true, everything
		rules := flowv1.PolicyRulesWithSubjects{
			Subjects:      []flowv1.Subject{{Kind: flowv1.SubjectKindUser, User: &flowv1.UserSubject{Name: User}}},
			ResourceRules: []flowv1.ResourcePolicyRule{rule},
		}
		if name == others {
			rules.NonResourceRules = []flowv1.NonResourcePolicyRule{{Verbs: everything, NonResourceURLs: everything}}
		}
		_, err := p.Client.FlowcontrolV1().FlowSchemas().Create(ctx, &flowv1.FlowSchema{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: flowv1.FlowSchemaSpec{
				MatchingPrecedence:         2, // that of none of the API server's own
				PriorityLevelConfiguration: flowv1.PriorityLevelConfigurationReference{Name: "exempt"},
				Rules:                      []flowv1.PolicyRulesWithSubjects{rules},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("count the requests of %s: %w", User, err)
		}
	}
	return p.classified(ctx)
}

// classified waits until the API server uses the flow schemas.
func (p *Plane) classified(ctx context.Context) error {
	config := p.REST()
	config.Impersonate = rest.ImpersonationConfig{UserName: User}
	as, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if _, err := as.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return false, nil // the API server does not know its rights yet
		}
		counts, err := p.Requests(ctx)
		return counts.Others > 0, err
	})
	if err != nil {
		return fmt.Errorf("count the requests of %s, whose flow schemas the API server must use: %w", User, err)
	}
	return nil
}

// Requests are the numbers of requests of the measured program.
type Requests struct {
	Leases, Watches, Others int
}

// Since returns the requests after before.
func (r Requests) Since(before Requests) Requests {
	return Requests{Leases: r.Leases - before.Leases, Watches: r.Watches - before.Watches, Others: r.Others - before.Others}
}

// Requests reads the current numbers.
func (p *Plane) Requests(ctx context.Context) (Requests, error) {
	var r Requests
	metrics, err := p.metrics(ctx, "apiserver_flowcontrol_dispatched_requests_total")
	for name, count := range map[string]*int{leases: &r.Leases, watches: &r.Watches, others: &r.Others} {
		*count = int(metrics.Sum("apiserver_flowcontrol_dispatched_requests_total", "flow_schema="+name))
	}
	return r, err
}

// Served returns the numbers of requests of all users, by verb and resource/subresource: "POST
// configmaps". Watches count when they end.
func (p *Plane) Served(ctx context.Context) (map[string]int, error) {
	counts := map[string]int{}
	metrics, err := p.metrics(ctx, "apiserver_request_total")
	for _, sample := range metrics {
		key := fmt.Sprintf("%s %s", sample.Metric["verb"], sample.Metric["resource"])
		if sub := sample.Metric["subresource"]; sub != "" {
			key += "/" + string(sub)
		}
		counts[key] += int(sample.Value)
	}
	return counts, err
}

// Allocated returns how many bytes the API server has allocated since it started.
func (p *Plane) Allocated(ctx context.Context) (float64, error) {
	metrics, err := p.metrics(ctx, "go_memstats_alloc_bytes_total")
	return metrics.Sum("go_memstats_alloc_bytes_total"), err
}

// Grown returns by how much the counts have grown, those that have.
func Grown(before, after map[string]int) map[string]int {
	grown := map[string]int{}
	for key, count := range after {
		if count > before[key] {
			grown[key] = count - before[key]
		}
	}
	return grown
}

// metrics reads a metric of the API server.
func (p *Plane) metrics(ctx context.Context, name string) (kit.Metrics, error) {
	text, err := p.Client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	return Parse(string(text), name)
}

// Parse reads one counter or gauge in a text of /metrics. It skips the other lines: the API server
// has many thousands.
func Parse(text, name string) (kit.Metrics, error) {
	var lines strings.Builder
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == '{' || rest[0] == ' ') {
			lines.WriteString(line)
		}
	}
	return kit.ParseMetrics(strings.NewReader(lines.String()))
}
