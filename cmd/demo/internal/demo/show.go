package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/examples"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/workstate"
)

// example is a file of examples/ and the feedback that its work must have.
type example struct {
	file     string
	feedback []string
}

var shown = []example{
	{file: "example-manifestwork.yaml"},
	{file: "hello-work-demo.yaml", feedback: []string{"ReadyReplicas", "Replicas", "AvailableReplicas", "isAvailable"}},
}

// showExamples applies the examples at the hub and prints their status as it arrives, until all are
// available with their feedback.
func (s *stage) showExamples(ctx context.Context) error {
	client, err := workclient.NewForConfig(s.hub)
	if err != nil {
		return err
	}
	works := client.WorkV1().ManifestWorks(clusterName)
	changes, err := works.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watch the works: %w", err)
	}
	defer changes.Stop()
	missing := map[string]example{}
	for _, e := range shown {
		text, err := examples.Files.ReadFile(e.file)
		if err != nil {
			return err
		}
		work := &workv1.ManifestWork{}
		if err := yaml.UnmarshalStrict(text, work); err != nil {
			return fmt.Errorf("read examples/%s: %w", e.file, err)
		}
		if _, err := works.Create(ctx, work, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("apply examples/%s: %w", e.file, err)
		}
		missing[work.Name] = e
		s.say("applied examples/%s at the hub", e.file)
	}
	latest, err := s.follow(ctx, changes, missing)
	s.printStatus(latest)
	return err
}

// follow prints the works' changes until all of missing are complete, and returns the works.
func (s *stage) follow(ctx context.Context, changes watch.Interface, missing map[string]example) ([]*workv1.ManifestWork, error) {
	latest := map[string]*workv1.ManifestWork{}
	said := map[string]string{}
	all := func() []*workv1.ManifestWork {
		var works []*workv1.ManifestWork
		for _, work := range latest {
			works = append(works, work)
		}
		slices.SortFunc(works, func(a, b *workv1.ManifestWork) int { return strings.Compare(a.Name, b.Name) })
		return works
	}
	for len(missing) > 0 {
		select {
		case event, open := <-changes.ResultChan():
			work, ok := event.Object.(*workv1.ManifestWork)
			if !open || !ok {
				return all(), fmt.Errorf("the hub API ended the watch: %v; see %s", event.Object, s.path("hub-api.log"))
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
			return all(), s.unfinished(context.Cause(ctx), latest, missing)
		}
	}
	return all(), nil
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

// printStatus prints the works' conditions and feedback values.
func (s *stage) printStatus(works []*workv1.ManifestWork) {
	out := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
	defer out.Flush()
	for _, work := range works {
		fmt.Fprintf(out, "\nmanifestwork/%s at the hub, namespace %s, generation %d\n", work.Name, work.Namespace, work.Generation)
		fmt.Fprintln(out, "  CONDITION\tSTATUS\tREASON\tMESSAGE")
		for _, c := range work.Status.Conditions {
			fmt.Fprintf(out, "  %s\t%s\t%s\t%s\n", c.Type, c.Status, c.Reason, c.Message)
		}
		fmt.Fprintln(out, "  RESOURCE\tAPPLIED\tAVAILABLE\tFEEDBACK")
		for _, m := range work.Status.ResourceStatus.Manifests {
			var values []string
			for _, v := range m.StatusFeedbacks.Values {
				values = append(values, v.Name+"="+workstate.ValueText(v.Value))
			}
			fmt.Fprintf(out, "  %s %s/%s\t%s\t%s\t%s\n", m.ResourceMeta.Kind, m.ResourceMeta.Namespace, m.ResourceMeta.Name,
				status(m.Conditions, workv1.ManifestApplied), status(m.Conditions, workv1.ManifestAvailable), strings.Join(values, " "))
		}
	}
}

func status(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return string(c.Status)
	}
	return "-"
}
