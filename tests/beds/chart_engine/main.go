// Renders a Helm chart as `helm template` does: the same template engine (Go's text/template), the
// same function library (Sprig), and the few functions and objects that Helm adds, as its
// documentation of charts describes them. No package registry has the program helm itself.
//
// chart-engine CHART < {"name", "namespace", "values", "apiVersions"} > {"path": "rendered text"}
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

type values = map[string]interface{}

type question struct {
	Name        string   `json:"name"`
	Namespace   string   `json:"namespace"`
	Values      values   `json:"values"`
	APIVersions versions `json:"apiVersions"`
}

type versions []string

// Has tells whether the cluster serves an API, as .Capabilities.APIVersions.Has in a template.
func (all versions) Has(wanted string) bool {
	for _, one := range all {
		if one == wanted {
			return true
		}
	}
	return false
}

// merged gives the defaults with what is set laid over them; null takes a default away.
func merged(defaults, set values) values {
	found := values{}
	for key, value := range defaults {
		found[key] = value
	}
	for key, value := range set {
		below, isMap := value.(values)
		under, wasMap := found[key].(values)
		switch {
		case value == nil:
			delete(found, key)
		case isMap && wasMap:
			found[key] = merged(under, below)
		default:
			found[key] = value
		}
	}
	return found
}

func toYAML(value interface{}) string {
	text, err := yaml.Marshal(value)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(text), "\n")
}

func fromYAML(text string) values {
	found := values{}
	if err := yaml.Unmarshal([]byte(text), &found); err != nil {
		found["Error"] = err.Error()
	}
	return found
}

func run(one *template.Template, data interface{}) (string, error) {
	var text strings.Builder
	err := one.Execute(&text, data)
	return strings.ReplaceAll(text.String(), "<no value>", ""), err
}

func functions(all *template.Template) template.FuncMap {
	found := sprig.TxtFuncMap()
	delete(found, "env") // a chart sees nothing of the machine that renders it
	delete(found, "expandenv")
	found["toYaml"], found["fromYaml"] = toYAML, fromYAML
	found["include"] = func(name string, data interface{}) (string, error) {
		one := all.Lookup(name)
		if one == nil {
			return "", fmt.Errorf("no template %q", name)
		}
		return run(one, data)
	}
	found["required"] = func(why string, value interface{}) (interface{}, error) {
		if text, isText := value.(string); value == nil || isText && text == "" {
			return value, fmt.Errorf("%s", why)
		}
		return value, nil
	}
	found["lookup"] = func(_, _, _, _ string) values { return values{} }
	return found
}

func read(path string, into interface{}) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return yaml.Unmarshal(text, into)
}

func rendered(folder string, asked question) (map[string]string, error) {
	about, defaults := values{}, values{}
	if err := read(filepath.Join(folder, "Chart.yaml"), &about); err != nil {
		return nil, err
	}
	if err := read(filepath.Join(folder, "values.yaml"), &defaults); err != nil {
		return nil, err
	}
	chart := values{}
	for key, value := range about {
		chart[strings.ToUpper(key[:1])+key[1:]] = value
	}
	data := values{
		"Values":  merged(defaults, asked.Values),
		"Chart":   chart,
		"Release": values{"Name": asked.Name, "Namespace": asked.Namespace, "Service": "Helm"},
		"Capabilities": values{"APIVersions": asked.APIVersions},
	}
	all := template.New("chart").Option("missingkey=zero")
	all.Funcs(functions(all))
	paths, err := filepath.Glob(filepath.Join(folder, "templates", "*"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if _, err := all.New(filepath.Base(path)).Parse(string(text)); err != nil {
			return nil, err
		}
	}
	found := map[string]string{}
	for _, path := range paths {
		name := filepath.Base(path)
		if strings.HasPrefix(name, "_") {
			continue
		}
		text, err := run(all.Lookup(name), data)
		if err != nil {
			return nil, err
		}
		found[name] = text
	}
	return found, nil
}

func answer() error {
	var asked question
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return err
	}
	found, err := rendered(os.Args[1], asked)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

func main() {
	if err := answer(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
