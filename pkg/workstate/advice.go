package workstate

import (
	"regexp"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// A sign maps what a message says to a cause and what to do. {cluster}, {work}, {executor}, {object}, {apiVersion} and {get}
// stand for names, and for the kubectl command that shows the object; {mayDo} for how to see what the executor may do.
type sign struct {
	pattern *regexp.Regexp
	cause   Cause
	do      string
}

func on(pattern string, cause Cause, do string) sign {
	return sign{regexp.MustCompile(pattern), cause, do}
}

// applySigns are matched in order against the message of Applied False of a manifest. They are
// constants in effect.
var applySigns = []sign{
	on(`not allowed to apply the resource|may not get it|only support ServiceAccount type|the executor service account|the executor has namespace|as the executor`, ExecutorDenied,
		"give {executor} the rights on {object} (create, update, patch, get, delete: docs/executor.md); it is tried again by itself{mayDo}"),
	on(`admission webhook .* denied the request`, Webhook,
		"change the manifest as the webhook asks, or ask its owner; the agent tries again by itself. On {cluster}: kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"),
	on(`failed calling webhook|failed to call webhook`, WebhookFailed,
		"the webhook does not answer on {cluster}: look at the pods and the certificate of its service; the agent tries again by itself"),
	on(`ValidatingAdmissionPolicy|MutatingAdmissionPolicy|violates PodSecurity|denied by pod security`, Policy,
		"change the manifest as the policy asks, or ask its owner on {cluster}"),
	on(`exceeded quota`, Quota, "raise the ResourceQuota of the namespace on {cluster}, or ask for less: kubectl describe resourcequota"),
	on(`conflict with field manager|conflict with another actor|another actor deletes`, Flapping, doFlapping), // of agents without the reason Flapping
	on(`Apply failed with \d+ conflicts?|conflicts? with "`, Conflict,
		"decide who owns the field: stop the other manager, or leave the field to it with ignoreFields of ServerSideApply, or take it with force (docs/strategies.md)"),
	on(`is being terminated|namespaces ".*" not found|namespace .* not found`, NoNamespace,
		"add the Namespace to the work before its objects, or create it on {cluster}; the agent tries again by itself"),
	on(`is forbidden|cannot (get|list|watch|create|update|patch|delete) resource|permission escalation|attempting to grant RBAC`, Forbidden,
		"give the agent on {cluster} the right that the message names, by a ClusterRole with the label of docs/agent.md, section rights; it tries again by itself"),
	on(`unknown update strategy`, UnknownStrategy,
		"set updateStrategy.type of the manifest to Update, CreateOnly, ServerSideApply or ReadOnly, or update the agent: docs/strategies.md"),
	on(`has no metadata\.namespace`, InvalidManifest, "set metadata.namespace of {object} in the work"),
	on(`the server does not allow this method|no matches for kind|doesn't have a resource type|could not find the requested resource`, UnknownKind,
		"check apiVersion {apiVersion} and kind, or install the CustomResourceDefinition of {object} on {cluster}, before or with this work"),
	on(`immutable|may not be changed|updates to .* are forbidden`, Immutable,
		"delete the object on {cluster}, or allow the agent to recreate it: annotate the manifest with "+workv1.RecreateAnnotationKey+"="+workv1.RecreateOnImmutable),
	on(`budget|cost limit`, Budget, "make the expression cheaper: docs/limits.md has the budgets"),
	on(`condition rule|which the agent (or the hub )?sets itself|names no condition`, InvalidRule, "correct the rule as the message says: docs/conditions.md"),
	on(`is invalid|must be set in manifest|must not be set|not a JSON object|not valid JSON|strict decoding|unknown field|duplicate manifest|must be|contradict|Bad ?Request|cannot unmarshal|nested deeper`,
		InvalidManifest, "correct the manifest as the message says"),
}

// readySigns are matched in order against the message of Degraded, Progressing and of the conditions
// that people write rules for.
var readySigns = []sign{
	on(`(?i)could not be scheduled|has not been scheduled|unschedulable|nodes are available|insufficient (cpu|memory|ephemeral)`, Unschedulable,
		"no node of {cluster} can run the pod: compare its requests, node selectors and tolerations with the nodes; on {cluster}: {describe}"),
	on(`(?i)ImagePullBackOff|ErrImagePull|InvalidImageName|pulling image|pull image`, ImagePull,
		"check the name of the image, and the pull secret of its namespace on {cluster}: {describe}"),
	on(`(?i)crash ?loop`, CrashLoop, "the container ends again and again: on {cluster}, kubectl logs --previous of the pod tells why"),
	on(`(?i)scheduled for deletion`, Finalizer, "the object is being deleted on {cluster}, and a finalizer holds it: {get} -o jsonpath='{.metadata.finalizers}'"),
}

const (
	doFlapping       = "stop the other party, or leave what it writes to it: ignoreFields of ServerSideApply, or no manifest for {object} (docs/strategies.md#drift-and-conflicts); it ends by itself two minutes after the last time"
	doHookFailed     = "on {cluster}, look at the pods of {object}: {describe}. Then change the work, or delete the Job, which runs the hook again (docs/order.md)"
	doWorkHookFailed = "look at the pods of the Job on {cluster}. Then change the work, or delete the Job, which runs the hook again (docs/order.md)"
	doStaged         = "nothing: it is applied at the time in the message, also without a connection; to apply it now, remove the annotation workwire.dev/apply-at from the work"
	doStagedHeld     = "give the annotation workwire.dev/apply-at of the work a time, or remove it to apply the work now. A RolloutPlan does so by itself (docs/rollout-plan.md)"
	doWindowMissed   = "look why the agent could not apply it in time; then give the annotation workwire.dev/apply-at of the work a later time, or remove it. A RolloutPlan does so by itself (docs/rollout-plan.md)"
	doWindowOver     = "give the annotation workwire.dev/apply-at of the work a later time, or remove it. A RolloutPlan does so by itself (docs/rollout-plan.md)"
	doWaits          = "nothing: it goes on by itself once what the message names is ready; if it stays, look at that on {cluster} (docs/order.md)"
	doDeletionWaits  = "wait; if it stays, on {cluster}, kubectl get appliedmanifestworks -o yaml shows what is left of the work: look which of these objects has finalizers, and at the log of the agent"
	doNoWork         = "no work %s is on {cluster}: create it, or correct the annotation workwire.dev/depends-on of the work. If it exists at the hub, workctl explain work NAME -n {cluster} says why it is not there (docs/order.md)"
	doNotApplied     = "read the message of the API server of {cluster}; the agent tries again by itself"
	doMissing        = "somebody deletes the object, or it was never created: the agent's log on {cluster} tells; the agent creates it again by itself"
	doUnreadable     = "give the agent, or the executor of the work, the right to get {object} on {cluster}"
	doExecutorGet    = "give {executor} the right to get {object} on {cluster}{mayDo}"
	doUnknownMeta    = "check apiVersion, kind and name of the manifest: {cluster} does not know them"
	doNotReady       = "wait; if it stays, on {cluster}: {describe}"
	doFailed         = "it does not become ready by itself. On {cluster}: {describe}"
	doPods           = ", and its pods: an image, a node or a crash is the usual cause"
	doWorkNotReady   = "wait; if it stays, look at the objects of the work on {cluster}"
	doWorkFailed     = "it does not become ready by itself: look at the objects of the work on {cluster}"
	doRule           = "correct the rule as the message says: docs/conditions.md"
	doWarning        = "correct it in the work, or leave it: nothing waits for it (docs/conditions.md#warnings)"
	doFeedback       = "correct the feedback rule as the message says: docs/feedback.md"
)
