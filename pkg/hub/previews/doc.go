// Package previews says what the preview of a ManifestWorkReplicaSet means for its rollout. A [Record] is what a preview has
// found, in an annotation of the set; [Held] decides by it whether clusters may get the template:
//
//	why := previews.Held(set.Annotations, previews.Subject{...})
//
// workctl makes records, and the hub holds rollouts (docs/preview.md). All of it is pure.
package previews
