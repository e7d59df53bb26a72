// Package sourcetest is for tests of programs that use package source: agents whose answers a test
// scripts, without clusters. With the broker of package memory, nothing leaves the process:
//
//	broker, topics := memory.NewBroker(), sourcetest.Topics("ops")
//	client, err := source.New(source.Config{SourceID: "ops", Topics: topics, Transport: broker.Client("ops")})
//	...
//	agent, err := sourcetest.NewAgent(sourcetest.AgentConfig{
//		Cluster: "cluster1", Source: "ops", Topics: topics, Transport: broker.Client("cluster1"),
//	})
//	...
//	go client.Run(ctx)
//	go agent.Run(ctx)
//
// An agent holds the works of its cluster, as a real one does over restarts of the source, asks for
// them when it connects, and reports each as applied and available, or whatever the test says.
// broker.Cut("cluster1") and broker.Restore("cluster1") take its connection away and back.
//
// The package is as stable as package source (docs/versioning.md).
package sourcetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// Topics returns the topics of a source and of agents that serve this source only.
func Topics(source wire.SourceID) wire.Topics {
	return wire.Topics{
		SourceEvents: fmt.Sprintf("sources/%s/clusters/+/sourceevents", source),
		AgentEvents:  fmt.Sprintf("sources/%s/clusters/+/agentevents", source),
	}
}

// AgentConfig configures an [Agent].
type AgentConfig struct {
	// Cluster is the cluster of the agent, the namespace of its works; required.
	Cluster wire.ClusterName
	// Source is the source that the agent serves; required.
	Source wire.SourceID
	// Topics are those of the source; required.
	Topics wire.Topics
	// Transport connects to the broker: that of package memory, or a real one; required.
	Transport transport.Transport
	// Status returns the status that the agent reports when it has received a work or a change of one.
	// Times and observedGenerations that are missing are added. It must not call methods of the
	// agent. Default: [Available].
	Status func(work *workv1.ManifestWork) workv1.ManifestWorkStatus
	// HoldDeletions makes the agent report works that are deleted as Deleting, until
	// [Agent.FinishDeletion].
	HoldDeletions bool
	// Silent makes the agent report nothing until [Agent.SetSilent], as a cluster that is off.
	Silent bool
}

// Agent is a scripted agent. Its methods are safe for concurrent use.
type Agent struct {
	config AgentConfig
	agent  *wirekit.Agent
}

// NewAgent returns an agent that does not run yet, or an error if a field of config is missing or
// invalid.
func NewAgent(config AgentConfig) (*Agent, error) {
	topics, err := config.Topics.ForAgent(config.Cluster)
	if err != nil {
		return nil, fmt.Errorf("agent of %q: %w", config.Cluster, err)
	}
	if _, err := topics.Events(config.Source); err != nil {
		return nil, fmt.Errorf("agent of %q: %w", config.Cluster, err)
	}
	if config.Transport == nil {
		return nil, fmt.Errorf("agent of %q: Transport is required", config.Cluster)
	}
	if config.Status == nil {
		config.Status = Available
	}
	a := &Agent{config: config}
	a.agent = wirekit.NewAgent(wirekit.AgentConfig{
		Cluster: config.Cluster, Source: config.Source, Topics: config.Topics, Transport: config.Transport,
		Status:       func(s *wire.Spec) workv1.ManifestWorkStatus { return complete(config.Status(a.workOf(s)), s) },
		KeepDeleting: config.HoldDeletions, Silent: config.Silent,
	})
	return a, nil
}

// Run connects and runs the agent until ctx ends. It returns nil then, or the error of the transport.
// It must be called once.
func (a *Agent) Run(ctx context.Context) error { return a.agent.Run(ctx) }

// Works returns the works that the agent holds, sorted by name: the newest spec of each that it has
// received. A work that HoldDeletions holds has a deletionTimestamp.
func (a *Agent) Works() []*workv1.ManifestWork {
	var works []*workv1.ManifestWork
	for _, s := range a.agent.Holds() {
		works = append(works, a.workOf(s))
	}
	slices.SortFunc(works, func(x, y *workv1.ManifestWork) int { return strings.Compare(x.Name, y.Name) })
	return works
}

// Work returns the work of this name, nil if the agent does not hold it.
func (a *Agent) Work(name string) *workv1.ManifestWork {
	if s := a.agent.Holds()[a.uid(name)]; s != nil {
		return a.workOf(s)
	}
	return nil
}

// Report reports another status of a work, as an agent does when an object changes. Times and
// observedGenerations that are missing are added. It returns an error if the agent does not hold the
// work.
func (a *Agent) Report(name string, status workv1.ManifestWorkStatus) error {
	s := a.agent.Holds()[a.uid(name)]
	if s == nil {
		return fmt.Errorf("agent of %q: it does not hold work %q", a.config.Cluster, name)
	}
	a.agent.Report(s, complete(status, s))
	return nil
}

// FinishDeletion reports a work that HoldDeletions holds as deleted. It does nothing with other works.
func (a *Agent) FinishDeletion(name string) { a.agent.Finish(a.uid(name)) }

// SetSilent makes the agent report nothing, or go on and report what it did not.
func (a *Agent) SetSilent(silent bool) { a.agent.SetSilent(silent) }

func (a *Agent) uid(name string) types.UID {
	return wire.UIDFor(a.config.Source, string(a.config.Cluster), name)
}

// workOf returns the work of a spec. It shares no memory with s.
func (a *Agent) workOf(s *wire.Spec) *workv1.ManifestWork {
	work := &workv1.ManifestWork{ObjectMeta: *s.Meta.DeepCopy()}
	work.UID, work.Namespace, work.Generation = s.UID, string(a.config.Cluster), int64(s.Generation)
	work.DeletionTimestamp = s.DeletionTimestamp.DeepCopy()
	if s.Bundle != nil {
		spec := s.Bundle.WorkSpec()
		work.Spec = *spec.DeepCopy()
	}
	return work
}

// complete adds times and generations that are missing.
func complete(status workv1.ManifestWorkStatus, s *wire.Spec) workv1.ManifestWorkStatus {
	status = *status.DeepCopy()
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	add := func(conditions []metav1.Condition, generation int64) {
		for i := range conditions {
			if c := &conditions[i]; c.LastTransitionTime.IsZero() {
				c.LastTransitionTime = now
			}
			if conditions[i].ObservedGeneration == 0 {
				conditions[i].ObservedGeneration = generation
			}
		}
	}
	add(status.Conditions, int64(s.Generation))
	for i := range status.ResourceStatus.Manifests {
		add(status.ResourceStatus.Manifests[i].Conditions, 0)
	}
	return status
}

// Available returns the status of a work whose manifests are all applied and available, and ready if the
// work asks for readiness.
func Available(work *workv1.ManifestWork) workv1.ManifestWorkStatus {
	condition := func(kind, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason}
	}
	status := workv1.ManifestWorkStatus{Conditions: []metav1.Condition{
		condition(workv1.WorkApplied, workv1.ReasonAppliedManifestWorkComplete), condition(workv1.WorkAvailable, workv1.ReasonResourcesAvailable),
	}}
	if workv1.ReportsReadiness(work) {
		status.Conditions = append(status.Conditions,
			metav1.Condition{Type: workv1.WorkProgressing, Status: metav1.ConditionFalse, Reason: workv1.ReasonConditionRulesAggregated})
	}
	for i, manifest := range work.Spec.Workload.Manifests {
		status.ResourceStatus.Manifests = append(status.ResourceStatus.Manifests, workv1.ManifestCondition{
			ResourceMeta: resourceOf(i, manifest),
			Conditions: []metav1.Condition{
				condition(workv1.ManifestApplied, workv1.ReasonAppliedManifestComplete), condition(workv1.ManifestAvailable, workv1.ReasonResourceAvailable),
			},
		})
	}
	return status
}

// Failed returns the status of a work that cannot be applied, for this reason.
func Failed(reason, message string) workv1.ManifestWorkStatus {
	return workv1.ManifestWorkStatus{Conditions: []metav1.Condition{
		{Type: workv1.WorkApplied, Status: metav1.ConditionFalse, Reason: reason, Message: message},
	}}
}

// resourceOf names the object of a manifest. The resource is guessed from the kind.
func resourceOf(ordinal int, manifest workv1.Manifest) workv1.ManifestResourceMeta {
	about := workv1.ManifestResourceMeta{Ordinal: int32(ordinal)} //nolint:gosec // a work has at most 5,000 manifests
	object := &unstructured.Unstructured{}
	if object.UnmarshalJSON(manifest.Raw) == nil {
		gvk := object.GroupVersionKind()
		resource, _ := meta.UnsafeGuessKindToResource(gvk)
		about.Group, about.Version, about.Kind, about.Resource = gvk.Group, gvk.Version, gvk.Kind, resource.Resource
		about.Name, about.Namespace = object.GetName(), object.GetNamespace()
	}
	return about
}
