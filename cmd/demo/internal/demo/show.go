package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/workwire/workwire/examples"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/workstate"
)

// lastLook is how long printing the works at the end may take.
const lastLook = 10 * time.Second

// example is a work, which a file of examples/ with its name has, and the feedback that it must have.
type example struct {
	name     string
	feedback []string
}

var shown = []example{
	{name: "example-manifestwork"},
	{name: "hello-work-demo", feedback: []string{"ReadyReplicas", "Replicas", "AvailableReplicas", "isAvailable"}},
}

// showExamples applies the examples at the hub and prints their status as it arrives, until all are
// available with their feedback.
func (s *stage) showExamples(ctx context.Context) error {
	client, err := workclient.NewForConfig(s.hub)
	if err != nil {
		return err
	}
	changes, err := client.WorkV1().ManifestWorks(clusterName).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watch the works: %w", err)
	}
	defer changes.Stop()
	missing := map[string]example{}
	for _, e := range shown {
		if err := s.applyExample(ctx, e.name+".yaml"); err != nil {
			return err
		}
		missing[e.name] = e
		s.say("applied examples/%s.yaml at the hub", e.name)
	}
	err = s.follow(ctx, changes, missing)
	s.describe(ctx)
	return err
}

// applyExample applies a file of examples/ at the hub.
func (s *stage) applyExample(ctx context.Context, file string) error {
	text, err := examples.Files.ReadFile(file)
	if err == nil {
		_, err = s.atHub(ctx, string(text), "apply", "--filename=-")
	}
	if err != nil {
		return fmt.Errorf("apply examples/%s: %w", file, err)
	}
	return nil
}

// describe prints the works as workctl does, also after the end of ctx.
func (s *stage) describe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
	defer cancel()
	for _, e := range shown {
		out, err := s.output(ctx, "", "workctl", "describe", "work", e.name, "-n", clusterName, "--kubeconfig="+s.path("hub/kubeconfig"))
		if err != nil {
			out = err.Error() + "\n"
		}
		fmt.Fprintf(s.Out, "\n%s", out)
	}
}

// follow prints the works' changes until all of missing are complete.
func (s *stage) follow(ctx context.Context, changes watch.Interface, missing map[string]example) error {
	latest := map[string]*workv1.ManifestWork{}
	said := map[string]string{}
	for len(missing) > 0 {
		select {
		case event, open := <-changes.ResultChan():
			work, ok := event.Object.(*workv1.ManifestWork)
			if !open || !ok {
				return fmt.Errorf("the hub API ended the watch: %v; see %s", event.Object, s.path("hub-api.log"))
			}
			latest[work.Name] = work
			if line := summary(work); line != said[work.Name] {
				said[work.Name] = line
				s.say("%s: %s", work.Name, line)
			}
			if e, waits := missing[work.Name]; waits && lacks(work, e) == "" {
				delete(missing, work.Name)
			}
		case <-ctx.Done():
			return s.unfinished(context.Cause(ctx), latest, missing)
		}
	}
	return nil
}

// unfinished returns an error that says what is missing, and where the logs are.
func (s *stage) unfinished(cause error, latest map[string]*workv1.ManifestWork, missing map[string]example) error {
	var lines []string
	for name, e := range missing {
		lack := "it has no status"
		if work, ok := latest[name]; ok {
			lack = lacks(work, e)
		}
		lines = append(lines, name+": "+lack)
	}
	for _, p := range s.running {
		if err := p.Died(); err != nil {
			lines = append(lines, err.Error())
		}
	}
	return fmt.Errorf("%w:\n%s\nThe logs are in %s", cause, strings.Join(lines, "\n"), s.Dir)
}

// lacks returns what work lacks for e, "" for nothing.
func lacks(work *workv1.ManifestWork, e example) string {
	for _, kind := range []string{workv1.WorkApplied, workv1.WorkReady} {
		if c := meta.FindStatusCondition(work.Status.Conditions, kind); c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != work.Generation {
			return "it is not " + kind
		}
	}
	values := map[string]string{}
	for _, m := range work.Status.ResourceStatus.Manifests {
		for _, v := range m.StatusFeedbacks.Values {
			values[v.Name] = workstate.ValueText(v.Value)
		}
	}
	for _, name := range e.feedback {
		if values[name] == "" {
			return "it feeds back no " + name
		}
	}
	if len(e.feedback) > 0 && values["isAvailable"] != "True" {
		return "it feeds back isAvailable " + values["isAvailable"]
	}
	return ""
}

// summary returns a work's status in one line.
func summary(work *workv1.ManifestWork) string {
	var parts []string
	for _, kind := range []string{workv1.WorkDelivered, workv1.WorkApplied, workv1.WorkReady} {
		if c := meta.FindStatusCondition(work.Status.Conditions, kind); c != nil {
			parts = append(parts, c.Type+"="+string(c.Status))
		}
	}
	for _, m := range work.Status.ResourceStatus.Manifests {
		for _, v := range m.StatusFeedbacks.Values {
			parts = append(parts, v.Name+"="+workstate.ValueText(v.Value))
		}
	}
	if len(parts) == 0 {
		return "at the hub, generation " + fmt.Sprint(work.Generation)
	}
	return strings.Join(parts, " ")
}
