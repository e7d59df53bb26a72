// Package pods finds out from the pods of a workload why it is not ready.
//
//	cause := pods.CauseOf(list)
//	fmt.Println(cause) // Pod web-x: ImagePullBackOff: Back-off pulling image "wbe:1"
//
// The reasons are Kubernetes' own words: Unschedulable, ErrImagePull, ImagePullBackOff,
// CrashLoopBackOff, OOMKilled and others of a container that waits. CauseOf is pure; [Reader] lists
// pods, seldom.
package pods

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/workwire/workwire/pkg/workstate/condition"
)

// maxText is the length in bytes of a text of Kubernetes in a cause.
const maxText = 512

// rank orders causes: a higher one is told rather than a lower one.
type rank int

const (
	starting rank = iota
	notReady
	unschedulable
	failed
	waiting
	image
	crashed
)

// Cause is why a pod is not ready. The zero Cause is none.
type Cause struct {
	Pod       string
	Container string // empty: the pod as a whole
	Text      string // starts with the reason

	rank rank
	// waits: the kubelet waits before it tries again, which is what stays of a cause.
	waits bool
}

// String returns the cause with the name of its pod, or "".
func (c Cause) String() string {
	if c.Text == "" {
		return ""
	}
	return "Pod " + c.Pod + ": " + c.Text
}

// Replaces reports whether c is told after before. It is not if both are one cause, whose text differs
// from time to time: an image that cannot be pulled is now ErrImagePull and now ImagePullBackOff. Then
// the one with which the kubelet waits stays.
func (c Cause) Replaces(before Cause) bool {
	return !c.Same(before) || c.waits && !before.waits
}

// Same reports whether c and other are one cause, whose text may differ from time to time.
func (c Cause) Same(other Cause) bool {
	return c.Pod == other.Pod && c.Container == other.Container && c.rank == other.rank && c.rank >= image
}

// CauseOf returns why pods are not ready: the gravest cause, of the first such pod in their order.
// It ignores pods that are ready, have succeeded or are being deleted.
func CauseOf(pods []corev1.Pod) Cause {
	var gravest Cause
	for i := range pods {
		gravest.note(causeOf(&pods[i]))
	}
	return gravest
}

// note replaces c by other if that is graver.
func (c *Cause) note(other Cause) {
	if other.Text != "" && (c.Text == "" || other.rank > c.rank) {
		*c = other
	}
}

// causeOf returns why one pod is not ready.
func causeOf(pod *corev1.Pod) Cause {
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || isTrue(pod, corev1.PodReady) {
		return Cause{}
	}
	gravest := Cause{}
	note := func(cause Cause) {
		cause.Pod = pod.Name
		gravest.note(cause)
	}
	for i := range pod.Status.InitContainerStatuses {
		note(ofContainer(pod, &pod.Status.InitContainerStatuses[i], true))
	}
	for i := range pod.Status.ContainerStatuses {
		note(ofContainer(pod, &pod.Status.ContainerStatuses[i], false))
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			note(Cause{rank: unschedulable, Text: text(c.Reason, withoutPreemption(c.Message))})
		}
	}
	if pod.Status.Phase == corev1.PodFailed && pod.Status.Reason != "" { // such as Evicted
		note(Cause{rank: failed, Text: text(pod.Status.Reason, pod.Status.Message)})
	}
	return gravest
}

// withoutPreemption returns what the scheduler says of a pod without its last sentences, which repeat it for the eviction of others.
func withoutPreemption(message string) string {
	fits, _, found := strings.Cut(message, "preemption: ")
	if end := strings.LastIndex(fits, ". "); found && end >= 0 {
		return fits[:end+1]
	}
	return message
}

// ofContainer returns why a container is not ready.
func ofContainer(pod *corev1.Pod, status *corev1.ContainerStatus, init bool) Cause {
	cause := Cause{Container: status.Name}
	name := "container " + status.Name
	if init {
		name = "init " + name
	}
	wait, last := status.State.Waiting, status.LastTerminationState.Terminated
	ended := status.State.Terminated
	switch {
	case wait != nil && (wait.Reason == "ErrImagePull" || wait.Reason == "ImagePullBackOff" || wait.Reason == "InvalidImageName"):
		cause.rank, cause.Text, cause.waits = image, text(wait.Reason, wait.Message), wait.Reason == "ImagePullBackOff"
	case wait != nil && wait.Reason == "CrashLoopBackOff": // its message counts seconds
		cause.rank, cause.Text, cause.waits = crashed, text(wait.Reason, name+exit(last)), true
	case wait != nil && wait.Reason != "ContainerCreating" && wait.Reason != "PodInitializing":
		cause.rank, cause.Text = waiting, text(wait.Reason, name+": "+wait.Message)
	case ended != nil && (ended.ExitCode != 0 || ended.Signal != 0):
		cause.rank, cause.Text = crashed, text(ended.Reason, name+exit(ended))
	case wait != nil || ended != nil: // an init container that is done
		if wait != nil {
			cause.rank, cause.Text = starting, text(wait.Reason, name)
		}
	case status.State.Running != nil && !status.Ready && last != nil && last.ExitCode != 0:
		cause.rank, cause.Text = crashed, text(last.Reason, name+exit(last)+", and runs again")
	case status.State.Running != nil && !status.Ready && !init:
		cause.rank, cause.Text = notReady, text("ContainersNotReady", name+" runs and is not ready"+probe(pod, status))
	}
	return cause
}

// exit returns how a container ended. Its own message is not told: nobody knows what it says.
func exit(ended *corev1.ContainerStateTerminated) string {
	switch {
	case ended == nil:
		return " ends again and again"
	case ended.Reason == "OOMKilled":
		return fmt.Sprintf(" used more memory than its limit: OOMKilled, exit code %d", ended.ExitCode)
	default:
		return fmt.Sprintf(" ended with exit code %d", ended.ExitCode)
	}
}

// probe returns which probe keeps a running container from being ready.
func probe(pod *corev1.Pod, status *corev1.ContainerStatus) string {
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		switch {
		case c.Name != status.Name:
		case c.StartupProbe != nil && status.Started != nil && !*status.Started:
			return ": its startup probe has not succeeded"
		case c.ReadinessProbe != nil:
			return ": its readiness probe fails"
		}
	}
	return ""
}

func isTrue(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// text returns reason and message as one line.
func text(reason, message string) string {
	message = strings.TrimSuffix(strings.TrimSpace(strings.Join(strings.Fields(message), " ")), ":")
	reason = cmp.Or(reason, "Error")
	if message == "" {
		return reason
	}
	return reason + ": " + condition.Cut(message, maxText)
}
