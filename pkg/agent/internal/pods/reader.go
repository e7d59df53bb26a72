package pods

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"
)

const (
	// patience is how long a workload may be not ready before its pods are listed.
	patience = 3 * time.Second
	// minDelay and maxDelay bound the time between two lists for one workload, which doubles as
	// long as it is not ready. A change of the workload brings the next list forward to minDelay.
	minDelay = 5 * time.Second
	maxDelay = 2 * time.Minute
	// busyDelay is the wait of a workload when the agent lists too often.
	busyDelay = 15 * time.Second
	// forbiddenDelay is the time between two attempts to list without the right to.
	forbiddenDelay = 10 * time.Minute
	// perSecond and burst bound the lists of an agent.
	perSecond, burst = 2, 10
	// maxPods is the number of pods of a list.
	maxPods = 50
	// listTimeout bounds a list, which is not worth waiting for.
	listTimeout = 5 * time.Second
	// maxForbidden is the number of namespaces that are remembered as forbidden.
	maxForbidden = 1000
)

// Reader lists the pods of workloads that are not ready: at most 2 lists a second, with 50 pods each.
// It is safe for concurrent use.
type Reader struct {
	limiter   flowcontrol.PassiveRateLimiter
	forbidden *lru.Cache // scope → until when, a time.Time
}

// scope is a namespace as somebody may see it.
type scope struct{ who, namespace string }

// NewReader returns a Reader.
func NewReader() *Reader {
	return &Reader{limiter: flowcontrol.NewTokenBucketPassiveRateLimiter(perSecond, burst), forbidden: lru.New(maxForbidden)}
}

// Known is what is known of the pods of a workload that is not ready. The zero Known is nothing.
type Known struct {
	// Text is the cause of the workload's state, or why it is not known; empty if there is nothing
	// to tell.
	Text string

	cause   Cause
	version string    // of the workload when its pods were listed
	listed  time.Time // zero: not yet
	delay   time.Duration
}

// Request asks why a workload is not ready.
type Request struct {
	// Workload is the live object.
	Workload *unstructured.Unstructured
	// Since is when it was first seen not to be ready.
	Since time.Time
	// Client returns the client that lists its pods; Who describes whose client that is, as in "the
	// agent".
	Client func(context.Context) (rest.Interface, error)
	Who    string
}

// HasPods reports whether workloads of the kind of an object have pods of their own.
func HasPods(object *unstructured.Unstructured) bool {
	switch kind := object.GroupVersionKind(); kind.Group {
	case "apps":
		return kind.Kind == "Deployment" || kind.Kind == "StatefulSet" || kind.Kind == "DaemonSet" || kind.Kind == "ReplicaSet"
	case "batch":
		return kind.Kind == "Job"
	case "":
		return kind.Kind == "Pod"
	}
	return false
}

// Next returns what is known after before, as of now, and after how long to ask again. It makes one
// request or none: none for a Pod, whose status it reads.
func (r *Reader) Next(ctx context.Context, before Known, q Request, now time.Time) (known Known, again time.Duration) {
	if kind := q.Workload.GroupVersionKind(); kind.Group == "" && kind.Kind == "Pod" {
		var pod corev1.Pod
		if runtime.DefaultUnstructuredConverter.FromUnstructured(q.Workload.Object, &pod) != nil {
			return Known{}, 0
		}
		return Known{Text: causeOf(&pod).Text}, 0
	}
	if wait := before.wait(q, now); wait > 0 {
		return before, wait
	}
	in := scope{who: q.Who, namespace: q.Workload.GetNamespace()}
	if until, ok := r.forbidden.Get(in); ok && until.(time.Time).After(now) {
		return Known{Text: notAllowed(in)}, until.(time.Time).Sub(now)
	}
	if !r.limiter.TryAccept() {
		return before, busyDelay
	}
	known = Known{version: q.Workload.GetResourceVersion(), listed: now, delay: min(max(minDelay, 2*before.delay), maxDelay)}
	pods, err := list(ctx, q)
	switch {
	case apierrors.IsForbidden(err):
		r.forbidden.Add(in, now.Add(forbiddenDelay))
		return Known{Text: notAllowed(in)}, forbiddenDelay
	case err != nil: // it shows elsewhere
		known.Text, known.cause = before.Text, before.cause
		return known, known.delay
	}
	if known.cause = CauseOf(pods); !known.cause.Replaces(before.cause) {
		known.cause = before.cause
	}
	known.Text = known.cause.String()
	if len(pods) == 0 {
		known.Text = noPods(q.Workload)
	}
	return known, known.delay
}

// wait returns how long to wait before the pods are listed.
func (k Known) wait(q Request, now time.Time) time.Duration {
	switch {
	case k.listed.IsZero():
		return q.Since.Add(patience).Sub(now)
	case k.version != q.Workload.GetResourceVersion():
		return k.listed.Add(minDelay).Sub(now)
	default:
		return k.listed.Add(k.delay).Sub(now)
	}
}

func notAllowed(in scope) string {
	return fmt.Sprintf("%s may not list pods in namespace %s, which would tell why", in.who, in.namespace)
}

// noPods returns why a workload has no pods, as its own status has it.
func noPods(workload *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(workload.Object, "status", "conditions")
	for _, item := range conditions {
		c, _ := item.(map[string]any)
		if c["type"] == "ReplicaFailure" && c["status"] == "True" {
			reason, _ := c["reason"].(string)
			message, _ := c["message"].(string)
			return text(reason, message)
		}
	}
	return ""
}

// list lists the pods that a workload selects.
func list(ctx context.Context, q Request) ([]corev1.Pod, error) {
	content, _, err := unstructured.NestedMap(q.Workload.Object, "spec", "selector")
	if err != nil {
		return nil, err
	}
	var selected metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &selected); err != nil {
		return nil, err
	}
	selector, err := metav1.LabelSelectorAsSelector(&selected)
	if err != nil || selector.Empty() { // of a Job that its controller has not seen: not all pods of the namespace
		return nil, err
	}
	client, err := q.Client(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	data, err := client.Get().AbsPath("/api/v1/namespaces", q.Workload.GetNamespace(), "pods").
		Param("labelSelector", selector.String()).Param("limit", strconv.Itoa(maxPods)).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := json.Unmarshal(data, &pods); err != nil {
		return nil, fmt.Errorf("decode pods: %w", err)
	}
	return pods.Items, nil
}
