"""The local web app: `luxmeter ui`. Pages are made by Python of the same parts as the report; plain links, so that every address can be shared."""
