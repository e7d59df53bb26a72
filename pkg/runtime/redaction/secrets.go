package redaction

// Objects calls visit with each JSON object in value, which is decoded JSON, and whether it is a Secret, wherever that is:
// items of a SecretList need no kind. visit may change what it is called with, but for kinds and items. Nesting is bounded
// by the limits of encoding/json.
func Objects(value any, visit func(object map[string]any, secret bool)) { objects(value, false, visit) }

// objects is Objects; listed has the objects that value is, or lists, as Secrets.
func objects(value any, listed bool, visit func(map[string]any, bool)) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			objects(item, listed, visit)
		}
	case map[string]any:
		visit(value, listed || value["kind"] == "Secret")
		for key, item := range value {
			objects(item, key == "items" && value["kind"] == "SecretList", visit)
		}
	}
}
