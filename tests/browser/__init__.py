"""The report as a person sees it: in a browser, on a phone, on paper."""
