// Package fields compares the fields that a manifest declares with those of a live object, and
// merges the former into the latter. It works on objects decoded from JSON, alike for every kind
// but for the few that [Rules] names, and does no I/O.
//
// Only declared fields count. Objects are compared and merged field by field, lists item by item
// and in length. A field that is null declares nothing. Differences are named by JSON pointers.
//
//	rules := fields.RulesFor(desired, live)
//	if len(rules.Differences(desired, live, nil)) > 0 {
//		next := live.DeepCopy()
//		rules.Merge(next, live, desired, nil, false)
//	}
package fields

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Rules are the exceptions that a kind makes from comparing and merging. The zero value has none.
type Rules struct {
	// exact names top-level maps whose undeclared keys are differences.
	exact []string
	// injected are keys of exact maps that another actor writes: they are neither compared nor
	// written to an existing object.
	injected map[string]bool
	// extraItems allows lists of objects to hold items of other actors, in any order.
	extraItems bool
	// createOnly names top-level fields that are not written to an existing object.
	createOnly map[string]bool
	// keptAnnotations are those that an existing object keeps with its own value: they are neither compared nor written then.
	keptAnnotations map[string]bool
	// caBundles keeps the CA bundles that were injected into items of "webhooks".
	caBundles bool
}

const (
	trustedBundleLabel      = "config.openshift.io/inject-trusted-cabundle"
	trustedBundleKey        = "ca-bundle.crt"
	serviceBundleAnnotation = "service.beta.openshift.io/inject-cabundle"
	serviceBundleKey        = "service-ca.crt"
	serviceAccountToken     = "kubernetes.io/service-account-token"
	defaultClassAnnotation  = "storageclass.kubernetes.io/is-default-class"
)

// noContent are the top-level fields that are not compared and merged like others.
var noContent = map[string]bool{"apiVersion": true, "kind": true, "metadata": true, "status": true}

// RulesFor returns the rules for writing desired over live, which may be nil.
func RulesFor(desired, live *unstructured.Unstructured) *Rules {
	switch desired.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "ConfigMap"}:
		return &Rules{exact: []string{"data", "binaryData"}, injected: injectedKeys(desired, live)}
	case schema.GroupKind{Kind: "Secret"}:
		if desired.Object["type"] == serviceAccountToken {
			return &Rules{} // the token controller adds keys
		}
		return &Rules{exact: []string{"data"}}
	case schema.GroupKind{Kind: "Pod"}, schema.GroupKind{Kind: "ServiceAccount"}:
		// Admission adds volumes and tolerations to pods, controllers add secrets to service
		// accounts.
		return &Rules{extraItems: true}
	case schema.GroupKind{Group: "storage.k8s.io", Kind: "StorageClass"}:
		return &Rules{keptAnnotations: map[string]bool{defaultClassAnnotation: true}} // which class is the default, the cluster decides
	case schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:
		if desired.Object["aggregationRule"] != nil {
			return &Rules{createOnly: map[string]bool{"rules": true}} // a controller writes them
		}
	case schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"},
		schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}:
		return &Rules{caBundles: true}
	}
	return &Rules{}
}

// Merged reports whether a top-level field is compared and merged field by field.
func (r *Rules) Merged(key string) bool {
	return !noContent[key] && !r.createOnly[key] && !slices.Contains(r.exact, key)
}

// declared returns the labels or annotations of a manifest, whichever field names, without those that the live object keeps.
func (r *Rules) declared(field string, want, live map[string]any) map[string]any {
	if field != "annotations" || len(r.keptAnnotations) == 0 {
		return want
	}
	want = maps.Clone(want)
	maps.DeleteFunc(want, func(key string, _ any) bool { return r.keptAnnotations[key] && live[key] != nil })
	return want
}

// allowsExtra reports whether the live list may hold more than the declared items.
func (r *Rules) allowsExtra(want []any) bool {
	return r.extraItems && !slices.ContainsFunc(want, func(item any) bool {
		_, isMap := item.(map[string]any)
		return !isMap
	})
}

func injectedKeys(desired, live *unstructured.Unstructured) map[string]bool {
	keys := map[string]bool{}
	for _, obj := range []*unstructured.Unstructured{desired, live} {
		if obj == nil {
			continue
		}
		if obj.GetLabels()[trustedBundleLabel] == "true" {
			keys[trustedBundleKey] = true
		}
		if obj.GetAnnotations()[serviceBundleAnnotation] == "true" {
			keys[serviceBundleKey] = true
		}
	}
	return keys
}

// keepCABundles gives each webhook of next that declares no CA bundle the one of the live webhook
// of the same name.
func keepCABundles(next, live map[string]any) {
	bundles := map[string]any{}
	eachWebhook(live, func(name string, config map[string]any) {
		if bundle, ok := config["caBundle"]; ok {
			bundles[name] = bundle
		}
	})
	eachWebhook(next, func(name string, config map[string]any) {
		if bundle, ok := bundles[name]; ok && config["caBundle"] == nil {
			config["caBundle"] = bundle
		}
	})
}

func eachWebhook(configuration map[string]any, do func(name string, clientConfig map[string]any)) {
	webhooks, _ := configuration["webhooks"].([]any)
	for _, item := range webhooks {
		webhook, _ := item.(map[string]any)
		name, _ := webhook["name"].(string)
		if config, ok := webhook["clientConfig"].(map[string]any); ok {
			do(name, config)
		}
	}
}
