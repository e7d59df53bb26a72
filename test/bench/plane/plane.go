// Package plane is the control plane of a benchmark: a real API server, and the
// count of what one user asks of it. The API server counts, so that any program
// can be measured: the user has flow schemas of its own (API priority and
// fairness), one for each class of requests, and the API server's metrics count
// requests by flow schema. Their priority level is "exempt", so that nothing is
// queued, as it is for the baseline's administrator.
package plane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/test/bench/procs"
	"github.com/workwire/workwire/test/kit/controlplane"
)

// User is who the measured program is to the API server.
const User = "bench-measured"

// Plane is a running control plane.
type Plane struct {
	// Kubeconfig is the path of the measured program's.
	Kubeconfig string
	// Client is the administrator's, without a limit of requests.
	Client kubernetes.Interface

	plane *controlplane.Plane
}

// Start starts a control plane with the definitions that it needs in its role.
func Start(ctx context.Context, dir, binary string, role controlplane.Role) (*Plane, error) {
	started, err := controlplane.Start(role)
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

// REST is the administrator's configuration, without a limit of requests.
func (p *Plane) REST() *rest.Config { return p.plane.REST() }

// Stop ends the control plane.
func (p *Plane) Stop() error { return p.plane.Stop() }

// CPU is the CPU time of the control plane: etcd, API server and controllers.
func (p *Plane) CPU() time.Duration {
	var total time.Duration
	for _, pid := range procs.Children(os.Getpid(), filepath.Dir(p.plane.Kubeconfig)) {
		if used, err := procs.CPUOf(pid); err == nil {
			total += used
		}
	}
	return total
}

// Namespace makes a namespace, unless it is there.
func (p *Plane) Namespace(ctx context.Context, name string) error {
	_, err := p.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// The classes of requests, in the order in which they are tried: flow schemas of
// one precedence go by name.
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

// classified waits until the API server goes by the flow schemas.
func (p *Plane) classified(ctx context.Context) error {
	config := p.REST()
	config.Impersonate = rest.ImpersonationConfig{UserName: User}
	as, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for {
		_, err := as.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		if err == nil { // else its rights are not known yet
			counts, err := p.Requests(ctx)
			if err != nil || counts.Others > 0 {
				return err
			}
		}
		if err := procs.Pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("count the requests of %s: the API server does not go by its flow schemas: %w", User, err)
		}
	}
}

// Requests is how many requests the measured program has made.
type Requests struct {
	Leases, Watches, Others int
}

// Since is what came after before.
func (r Requests) Since(before Requests) Requests {
	return Requests{Leases: r.Leases - before.Leases, Watches: r.Watches - before.Watches, Others: r.Others - before.Others}
}

// Requests reads the counts so far.
func (p *Plane) Requests(ctx context.Context) (Requests, error) {
	var r Requests
	of := map[string]*int{leases: &r.Leases, watches: &r.Watches, others: &r.Others}
	err := p.metric(ctx, "apiserver_flowcontrol_dispatched_requests_total", func(labels string, value float64) {
		for name, count := range of {
			if strings.Contains(labels, `flow_schema="`+name+`"`) {
				*count += int(value)
			}
		}
	})
	return r, err
}

// Served counts the requests of everybody, by verb and resource/subresource:
// "POST configmaps". Watches are counted when they end.
func (p *Plane) Served(ctx context.Context) (map[string]int, error) {
	counts := map[string]int{}
	err := p.metric(ctx, "apiserver_request_total", func(labels string, value float64) {
		key := label(labels, "verb") + " " + label(labels, "resource")
		if sub := label(labels, "subresource"); sub != "" {
			key += "/" + sub
		}
		counts[key] += int(value)
	})
	return counts, err
}

// Grown gives the counts that are higher than before, by how much.
func Grown(before, after map[string]int) map[string]int {
	grown := map[string]int{}
	for key, count := range after {
		if count > before[key] {
			grown[key] = count - before[key]
		}
	}
	return grown
}

// metric calls each for every series of a metric of the API server.
func (p *Plane) metric(ctx context.Context, name string, each func(labels string, value float64)) error {
	text, err := p.Client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("read the API server's metrics: %w", err)
	}
	Series(string(text), name, each)
	return nil
}

// Series calls each for every series of a metric in a Prometheus text.
func Series(text, name string, each func(labels string, value float64)) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		end := strings.LastIndexByte(rest, ' ')
		value, err := strconv.ParseFloat(strings.TrimSpace(rest[end:]), 64)
		if err == nil {
			each(rest[:end], value)
		}
	}
}

func label(labels, name string) string {
	for _, before := range []string{"{", ","} {
		if _, rest, ok := strings.Cut(labels, before+name+`="`); ok {
			value, _, _ := strings.Cut(rest, `"`)
			return value
		}
	}
	return ""
}
