// Package doctor finds out why works do not reach a cluster: it checks the way to the broker, what
// the broker allows, the agent at the other end, and the Kubernetes API, one after another.
//
//	results := doctor.Run(ctx, doctor.Config{Broker: &broker, Role: doctor.Source, Cluster: "cluster1", REST: rest})
//
// It changes nothing. At the broker it is a client of its own with a clean session.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/uuid"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/wire"
)

// Verdict is the outcome of a check.
type Verdict string

// Verdicts. Skipped means that the check needs something that is not given, or that failed.
const (
	Good    Verdict = "ok"
	Warning Verdict = "warning"
	Fault   Verdict = "fault"
	Skipped Verdict = "skipped"
)

// Result is the result of a check.
type Result struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Message string  `json:"message"`
	// Fix says what to do; empty if there is nothing to do.
	Fix string `json:"fix,omitempty"`
}

// Role is whose transport configuration or kubeconfig it is.
type Role string

// Roles. Operator is a person with workctl, and has no transport configuration.
const (
	Source   Role = "source"
	Agent    Role = "agent"
	Operator Role = "operator"
)

// Config says what to check.
type Config struct {
	// Broker is a transport configuration; nil skips the checks of the broker.
	Broker *config.Config
	// Role is whose configuration Broker is: Source or Agent; default Source.
	Role Role
	// Cluster is the cluster whose agent must answer; required for the role Agent, otherwise without it
	// these checks are skipped.
	Cluster wire.ClusterName
	// Sign signs the question to the agent, for agents that demand signatures; nil for none.
	Sign func(*cloudevents.Event) error
	// REST is the hub's API, or for the role Agent that of the cluster; nil skips its checks.
	REST *rest.Config
	// Rights is whose rights REST must have; default Operator, for the role Agent Agent.
	Rights Role
	// Timeout limits each check; default 10 s.
	Timeout time.Duration
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// patient is examined by the checks. Its fields are set by the checks before.
type patient struct {
	Config
	results []Result
	id      string // of the client, and of the work that nobody has
}

// Run makes all checks, and returns their results in order.
func Run(ctx context.Context, c Config) []Result {
	c.Role = cmp.Or(c.Role, Source)
	if c.Role == Agent {
		c.Rights = cmp.Or(c.Rights, Agent)
	}
	c.Rights = cmp.Or(c.Rights, Operator)
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	p := &patient{Config: c, id: uuid.NewString()}
	if c.Broker == nil {
		p.skip("broker", "no transport configuration is given", "use --transport to check the broker")
	} else {
		p.broker(ctx)
	}
	if c.REST == nil {
		p.skip("api", "no kubeconfig is given", "use --kubeconfig to check the API server")
	} else {
		p.api(ctx)
	}
	return p.results
}

// Worst returns the worst verdict: Fault, Warning or Good.
func Worst(results []Result) Verdict {
	worst := Good
	for _, r := range results {
		if r.Verdict == Fault || r.Verdict == Warning && worst == Good {
			worst = r.Verdict
		}
	}
	return worst
}

func (p *patient) add(check string, verdict Verdict, fix, format string, args ...any) {
	p.results = append(p.results, Result{Check: check, Verdict: verdict, Message: fmt.Sprintf(format, args...), Fix: fix})
}

func (p *patient) good(check, format string, args ...any) { p.add(check, Good, "", format, args...) }

func (p *patient) skip(check, message, fix string) { p.add(check, Skipped, fix, "%s", message) }

func (p *patient) fault(check string, err error, fix string) { p.add(check, Fault, fix, "%v", err) }

// timeout returns a context for one check.
func (p *patient) timeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, p.Timeout)
}

// Skews of clocks. Signatures and certificates tolerate more than warningSkew; faultSkew is a mistake.
const (
	warningSkew = 30 * time.Second
	faultSkew   = 10 * time.Minute
)

// skew compares the clock of another machine, read between sent and received, with this one.
func (p *patient) skew(check, whose string, theirs, sent, received time.Time) {
	difference := time.Duration(0)
	switch {
	case theirs.Before(sent):
		difference = theirs.Sub(sent)
	case theirs.After(received):
		difference = theirs.Sub(received)
	}
	const fix = "set both clocks by NTP: certificates, signatures and the times of conditions depend on them"
	direction := "ahead"
	if difference < 0 {
		direction = "behind"
	}
	switch size := difference.Abs(); {
	case size >= faultSkew:
		p.add(check, Fault, fix, "the clock of %s is %s %s", whose, size.Round(time.Second), direction)
	case size >= warningSkew:
		p.add(check, Warning, fix, "the clock of %s is %s %s", whose, size.Round(time.Second), direction)
	default:
		p.good(check, "the clock of %s differs by less than %s", whose, max(size+received.Sub(sent), time.Second).Round(time.Second))
	}
}
