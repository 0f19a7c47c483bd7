// Command manifests renders what deploy/ has for Kubernetes, by the code of Helm and of Kustomize, without a cluster.
//
//	manifests helm [-release NAME] [-namespace NAME] CHART [VALUES.yaml ...]   the documents, as `helm template`
//	manifests lint CHART [VALUES.yaml ...]                                     what `helm lint` says; 1 for an error
//	manifests kustomize FOLDER                                                 the documents, as `kustomize build`
//
// It is less than those programs: it asks no cluster, runs no hooks, and fetches nothing.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const usage = "usage: manifests helm|lint|kustomize [-release NAME] [-namespace NAME] FOLDER [VALUES.yaml ...]"

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	release := flags.String("release", "rallypoint", "the name of the release")
	namespace := flags.String("namespace", "default", "the namespace of the release")
	_ = flags.Parse(os.Args[2:])
	if flags.NArg() == 0 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	var text string
	var err error
	switch folder := flags.Arg(0); os.Args[1] {
	case "helm":
		text, err = rendered(folder, flags.Args()[1:], *release, *namespace)
	case "lint":
		text, err = linted(folder, flags.Args()[1:], *namespace)
	case "kustomize":
		text, err = built(folder)
	default:
		err = errors.New(usage)
	}
	fmt.Print(text)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// rendered gives every template's documents, each after the name of its file, notes included.
func rendered(folder string, files []string, release string, namespace string) (string, error) {
	chart, err := loader.Load(folder)
	if err != nil {
		return "", err
	}
	given, err := merged(files)
	if err != nil {
		return "", err
	}
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	values, err := chartutil.ToRenderValues(chart, given, options, chartutil.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	documents, err := engine.Render(chart, values)
	if err != nil {
		return "", err
	}
	names := make([]string, 0, len(documents))
	for name := range documents {
		names = append(names, name)
	}
	sort.Strings(names)
	var text strings.Builder
	for _, name := range names {
		if filepath.Ext(name) == ".yaml" && strings.TrimSpace(documents[name]) != "" {
			fmt.Fprintf(&text, "---\n# Source: %s\n%s\n", name, documents[name])
		}
	}
	return text.String(), nil
}

// linted gives the messages of Helm's linter, and an error where one of them is an error.
func linted(folder string, files []string, namespace string) (string, error) {
	given, err := merged(files)
	if err != nil {
		return "", err
	}
	found := lint.All(folder, given, namespace, true)
	var text strings.Builder
	for _, message := range found.Messages {
		fmt.Fprintln(&text, message)
	}
	if found.HighestSeverity >= support.ErrorSev {
		return text.String(), errors.New("the chart has errors")
	}
	return text.String(), nil
}

// merged gives the values of the files, of which a later one counts more.
func merged(files []string) (map[string]interface{}, error) {
	values := map[string]interface{}{}
	for _, file := range files {
		more, err := chartutil.ReadValuesFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		values = chartutil.MergeTables(more, values)
	}
	return values, nil
}

// built gives what a kustomization makes of its resources.
func built(folder string) (string, error) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return "", err
	}
	text, err := resources.AsYaml()
	return string(text), err
}
